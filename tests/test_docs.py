"""Docs and product agree in both directions: each name in the docs exists, each feature is named there."""

import re
from importlib.util import find_spec
from typing import Any

import pytest
import tomllib
import yaml

from psfleet.inventory.variables import HOST_VARIABLES
from psfleet.watch import doctor_findings
from tests.repository import ROOT
from tools.written_docs import LONGEST_CELL
from trainer import metrics
from trainer.contract import exit_codes, record_fields

FOLDERS = {"docs", "examples", "inventory/sample", "molecule", "playbooks", "plugins", "psfleet", "roles"}
FOLDERS |= {"benchmarks", "tests", "tools", "trainer"}
FILES = [*ROOT.glob("*.*"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.*"))]
TEXTS = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in FILES
    if path.suffix in {".md", ".py", ".yml", ".j2"}
}
# The changelog also names removed things.
PAGES = [name for name in TEXTS if name.endswith(".md") and name != "CHANGELOG.md"]
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())

NAME = re.compile(r"`([A-Za-z_][\w-]*)`")
CODE = re.compile(r"`([^`\n]+)`")
BLOCK = re.compile(r"^```\w*\n(.*?)^```|^ {4,}(\S[^\n]*)$", re.DOTALL | re.MULTILINE)
SPANS = {text for page in PAGES for text in CODE.findall(TEXTS[page])}
TYPED = "\n".join([*SPANS, *("".join(block) for page in PAGES for block in BLOCK.findall(TEXTS[page]))])


def section(page: str, title: str) -> str:
    return TEXTS[page].split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def rows(text: str) -> list[list[str]]:
    r"""The cells of every table, without headings. A cell has "|" as "\|"."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rules = {number for number, line in enumerate(lines) if set(line) <= set("|-")}
    body = [line for number, line in enumerate(lines) if not {number, number + 1} & rules]
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in body]
    return [[cell.strip().replace(r"\|", "|") for cell in row] for row in cells]


def first_names(page: str, *titles: str) -> list[str]:
    """The names in the first column of a page's tables."""
    cells = [re.sub(r"\(.*?\)", "", row[0]) for title in titles for row in rows(section(page, title))]
    return [name for cell in cells for name in NAME.findall(cell)]


def anchors(page: str) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", TEXTS[page], flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [*PAGES, "CHANGELOG.md"])
def test_the_target_of_every_link_exists(page: str) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", TEXTS[page]):
        path, _, anchor = link.partition("#")
        if "://" not in link:
            target = ((ROOT / page).parent / path).resolve() if path else ROOT / page
            assert target.exists(), link
            assert not anchor or anchor in anchors(str(target.relative_to(ROOT))), link


@pytest.mark.parametrize("page", [page for page in PAGES if "zh-CN" in page])
def test_a_translation_has_only_commands_and_names_of_its_original_and_both_are_linked(page: str) -> None:
    """Code in the translation is also in the original, except for comments."""
    original = TEXTS[page.replace("/zh-CN", "").replace(".zh-CN", "")]
    blocks = "\n".join("".join(block) for block in BLOCK.findall(TEXTS[page]))
    lines = (re.split(r"(?:^|\s)# ", line)[0].strip() for line in blocks.splitlines())
    codes = {*CODE.findall(re.sub(r"``.*?``", "", BLOCK.sub("", TEXTS[page]))), *lines}
    assert sorted(code for code in codes if code not in original) == []
    assert f"[中文]({page.removeprefix('docs/')})" in original
    assert "*[English](" in TEXTS[page]


def test_each_row_of_the_features_table_is_short_and_links_to_a_page() -> None:
    for row in rows(TEXTS["docs/features.md"]):
        assert re.search(r"\]\([^)]+\.md", row[2]), row[0]
        assert all(len(re.sub(r"\]\([^)]*\)", "", cell).split()) <= 25 for cell in row), row[0]


@pytest.mark.parametrize("page", PAGES)
def test_a_table_has_values_and_no_prose(page: str) -> None:
    """A cell has at most 200 characters, as a reader sees it: without the targets of its links."""
    cells = [re.sub(r"\]\([^)]*\)", "]", cell) for row in rows(TEXTS[page]) for cell in row]
    assert [cell for cell in cells if len(cell) > LONGEST_CELL] == []


def test_every_named_path_and_page_exists() -> None:
    path = rf"(?<![\w./-])(?:{'|'.join(FOLDERS)})/[\w./-]*"
    named = {text for text in SPANS if re.fullmatch(path, text)}
    named |= {name for page in PAGES for name in re.findall(rf"{path}\.(?:md|py|yml)\b", TEXTS[page])}
    named |= {page for text in TEXTS.values() for page in re.findall(r"docs/[\w-]+\.md", text)}
    assert {"docs/verdict.md", "psfleet/evidence/verdict.py"} <= named
    assert {name for name in named if not (ROOT / name).exists()} == set()
    listed = set(re.findall(r"\]\(([^)#]+\.md)", TEXTS["docs/README.md"]))
    pages = {page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")}
    assert listed == pages - {"README.md"}


def test_documented_commands_exist_and_every_playbook_and_target_is_documented() -> None:
    commands = "\n".join(line for line in TYPED.splitlines() if "ansible-playbook" in line)
    told = set(re.findall(r"(?<![\w@/.-])(?:playbooks/)?[a-z_]+\.yml\b", commands))
    playbooks = {
        name for name in TEXTS if re.fullmatch(r"\w+\.yml", name) and "import_playbook" in TEXTS[name]
    }
    assert playbooks <= told <= set(TEXTS)
    table = TEXTS["docs/operations.md"].split("\n## ", 1)[0]
    assert playbooks == set(re.findall(r"ansible-playbook (\w+\.yml)", table))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):.*##", makefile, flags=re.MULTILINE))
    assert set(re.findall(r"^make ([a-z-]+)", TYPED, flags=re.MULTILINE)) == targets
    modules = set(re.findall(r"python3? -m ([\w.]+)", TYPED))
    assert not [name for name in modules if not find_spec(name)]


@pytest.mark.parametrize("package", ["trainer", "psfleet"])
def test_the_picture_of_the_house_has_the_floors_that_lint_enforces(package: str) -> None:
    house = section("docs/architecture.md", "The house")
    rooms = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
    drawn = [set(re.findall(r"(\w+)/", floor)) for floor in re.findall(r"│ \d  ([^│]*)│", house)]
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = [contract["layers"] for contract in linter["contracts"] if contract["type"] == "layers"]
    linted = [set(re.findall(rf"\b{package}\.(\w+)", floor)) & rooms for floors in layers for floor in floors]
    assert [floor for floor in drawn if floor & rooms] == [floor for floor in linted if floor]
    assert set.union(*linted) == rooms
    assert rooms <= {name for row in rows(house) for name in re.findall(r"`(\w+)/`", row[0])}
    assert sorted(name for row in rows(house) for name in NAME.findall(row[0]) if name in ROLES) == ROLES


def load(role: str, file: str) -> Any:  # noqa: ANN401
    return yaml.safe_load(TEXTS.get(f"roles/{role}/{file}", "")) or {}


def options(role: str) -> dict[str, Any]:
    entries = load(role, "meta/argument_specs.yml").get("argument_specs", {}).values()
    return {name: option for entry in entries for name, option in entry.get("options", {}).items()}


@pytest.mark.parametrize("role", ROLES)
def test_every_variable_is_specified_and_documented_with_one_default(role: str) -> None:
    defaults, specified = load(role, "defaults/main.yml"), options(role)
    table = {
        row[0].strip("`"): row[1].strip("`") for row in rows(section(f"roles/{role}/README.md", "Variables"))
    }
    required = {name for name, option in specified.items() if option.get("required")}
    assert set(defaults) | required == set(specified) == set(table)
    assert {name: specified[name].get("default") for name in defaults} == defaults
    told = {name: table[name] if "{{" in table[name] else yaml.safe_load(table[name]) for name in defaults}
    assert told == defaults
    for name, option in specified.items():
        assert name.startswith(f"{role}_")
        assert {"type", "description"} <= option.keys(), name


def test_variables_named_in_pages_belong_to_roles() -> None:
    ours = re.compile(rf"\b(?:{'|'.join(ROLES)})_[a-z_]*[a-z]\b(?![/.(])")
    named = {name for text in SPANS for name in ours.findall(text)}
    assert named - {name for role in ROLES for name in options(role)} == set()
    assert set(first_names("docs/inventory.md", "Variables")) == HOST_VARIABLES


def test_checks_of_the_doctor_are_documented() -> None:
    groups = ("The host", "GPUs", "What is deployed")
    assert tuple(tuple(first_names("docs/doctor.md", group)) for group in groups) == doctor_findings.GROUPS


def test_exit_codes_are_documented() -> None:
    table = rows(section("docs/contracts.md", "Exit codes"))
    told = {
        int(code): (name, kind.strip("`"), systemd) for code, name, kind, systemd in table if code.isdigit()
    }
    named = {value: name for name, value in vars(exit_codes).items() if isinstance(value, int)}
    assert set(told) == set(named)
    for code, (name, kind, systemd) in told.items():
        assert name in {named[code], "(the shell's for SIGTERM)"}
        assert kind == exit_codes.FAILURE_CLASSES.get(code, "")
        assert systemd.startswith("no restart") == (code in exit_codes.NO_RESTART)


def test_metrics_and_phases_of_a_run_are_documented() -> None:
    lead = metrics.HostTask("worker0", "worker", {}, "", {}, {"phase": "training"})
    families = {family.name for family in metrics.families("psfleet", [lead])}
    assert set(first_names("docs/operations.md", "Metrics")) == families
    phases = TEXTS["docs/contracts.md"].split('"phase": "')[1].split('", "wall"')[0]
    assert tuple(phases.split('" | "')) == metrics.PHASES


def test_events_and_their_fields_are_documented() -> None:
    text = section("docs/contracts.md", "Event records, version 1")
    assert NAME.findall(text.split("Each has\n")[1].split("\n\n")[0]) == ["v", *record_fields.COMMON]
    listed = re.split(r"^- (?=`)", text.split("\nHow the fields")[0], flags=re.MULTILINE)[1:]
    assert {event: set(fields) for event, *fields in map(NAME.findall, listed)} == {
        event: {*fields} for event, fields in record_fields.EVENTS.items()
    }
