"""The generated parts of pages and roles are as `make docs` writes them."""

import ast
import os
import re
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.repository import ROOT
from tools.written_docs import generated_texts
from trainer.contract.settings import RULES, Handling

ROOMS = ("trainer", "psfleet", "plugins", "tools")
SETTING = """\
    clipped_norm: float | None = entry(
        2.5,
        or_null(number(0), "gradients as they are"),
        "The largest norm | of a `gradient`. It is new.",
        Handling(per_host=False, fixed_in_a_run=True, reset_by_prove=True, with_tables=(None, 2.5)),
    )
"""
# The place that uses it: a worker prints it.
USE = """\

_run_worker = run_worker


def run_worker(task: RunningTask) -> int:
    print("clipped_norm is", task.settings.clipped_norm, flush=True)
    return _run_worker(task)
"""
# The tasks of a run get the files that train.yml writes for them.
PLAY = """\
- import_playbook: psfleet.cluster.preflight_inventory
- hosts: localhost
  gather_facts: false
  tasks:
    - psfleet.cluster.files:
        directories: [{path: "{{ cluster_paths.configuration_directory }}/run"}]
        files: "{{ tasks | psfleet.cluster.run_files(cluster_paths, run, deployed, 'root') }}"
      vars:
        tasks: [{job: worker, index: 0, name: worker0}]
        run: {id: r1, settings: {tasks: "{{ cluster_settings.tasks }}"}}
        deployed: {release: a, environment: b}
"""
MODEL = '''\
"""A parabola, by its
coefficients.

It is new."""

CARD = {
    "learning_rates": {"adam": 0.25, "sgd": 1.0},
    "settings": ["hidden_units"],
    "metrics": {"loss": "lower", "slope": "neither"},
    "goals": {"loss": {"minimum": 0, "maximum": 0.5}},
    "target_loss": 0.75,
}
'''


def test_generated_parts_of_pages_and_roles_are_up_to_date() -> None:
    old = [
        str(path.relative_to(ROOT))
        for path, text in generated_texts(ROOT).items()
        if path.read_text(encoding="utf-8") != text
    ]
    assert not old, f"run `make docs`: {', '.join(old)} is not what it writes"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the project."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in (*ROOMS, "docs", "roles", "playbooks", "meta", "collections"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored, symlinks=True)
    for name in ("ansible.cfg", "galaxy.yml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def run_in(copy: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command in the copy of the project."""
    environment = os.environ | {"ANSIBLE_NOCOLOR": "1"}
    return subprocess.run(
        command, cwd=copy, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def make_docs(copy: Path) -> list[str]:
    """Let the copy write its docs, and return the names of the written files."""
    code = (
        "import runpy, sys; sys.modules['tensorflow'] = None; "
        "runpy.run_module('tools.written_docs', run_name='__main__')"
    )
    done = run_in(copy, sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    return [line.removeprefix("written: ") for line in done.stdout.splitlines()]


def loaded(path: Path) -> Any:  # noqa: ANN401
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def options(copy: Path) -> Any:  # noqa: ANN401
    return loaded(copy / "roles/trainer/meta/argument_specs.yml")["argument_specs"]["main"]["options"]


def add_setting(copy: Path, entry: str) -> None:
    settings = copy / "trainer/contract/settings.py"
    before = settings.read_text(encoding="utf-8")
    settings.write_text(before.replace("    epochs: int =", f"{entry}    epochs: int =", 1))


def test_a_new_training_setting_is_written_into_every_page_and_role(copy: Path) -> None:
    """The table "Where a change belongs" promises it."""
    add_setting(copy, SETTING)
    assert sorted(make_docs(copy)) == [
        "docs/operations.md",
        "docs/prove.md",
        "roles/trainer/README.md",
        "roles/trainer/defaults/main.yml",
        "roles/trainer/meta/argument_specs.yml",
    ]
    expected = "a number >= 0, or null for gradients as they are"
    meaning = f"The largest norm {{bar}} of a {{gradient}}. It is new. A{expected[1:]}."
    assert options(copy)["trainer_clipped_norm"] == {
        "description": meaning.format(bar="|", gradient="C(gradient)"),
        "type": "raw",
        "default": 2.5,
    }
    defaults = loaded(copy / "roles/trainer/defaults/main.yml")
    assert defaults == {name: option["default"] for name, option in options(copy).items()}
    in_table = meaning.format(bar="\\|", gradient="`gradient`")
    assert (
        f"| `trainer_clipped_norm` | `2.5` | {in_table} |\n" in (copy / "roles/trainer/README.md").read_text()
    )
    for page in ("operations", "prove"):
        assert ", `trainer_clipped_norm`, " in (copy / f"docs/{page}.md").read_text()
    assert make_docs(copy) == []


def test_a_new_training_setting_arrives_in_a_task(copy: Path) -> None:
    """The table "Where a change belongs" names all that has to be edited."""
    add_setting(copy, SETTING)
    with (copy / "trainer/task/worker.py").open("a", encoding="utf-8") as worker:
        worker.write(USE)
    make_docs(copy)
    configuration = copy / "etc"
    configuration.mkdir()
    hosts = {"ps": {"hosts": {"node1": None}}, "worker": {"hosts": {"node2": None}}}
    chosen = {"replication": "local", "model": "linear", "steps": 10, "clipped_norm": "7.5"}
    variables = {f"trainer_{name}": value for name, value in chosen.items()}
    variables["trainer_configuration_directory"] = str(configuration)
    (copy / "hosts.yml").write_text(yaml.safe_dump({"tf_cluster": {"children": hosts, "vars": variables}}))
    (copy / "play.yml").write_text(PLAY)
    played = run_in(copy, Path(sys.executable).with_name("ansible-playbook"), "play.yml", "-i", "hosts.yml")
    assert played.returncode == 0, played.stdout
    task = ("--job_name=worker", "--task_index=0", "--ps_hosts=node1:1", "--worker_hosts=node2:1")
    trained = run_in(
        copy, sys.executable, "-m", "trainer", *task, f"--settings={configuration}/run/worker-0.json"
    )
    assert (trained.returncode, "clipped_norm is 7.5\n" in trained.stdout) == (0, True), trained.stderr


@pytest.mark.parametrize("answer", [each.name for each in fields(Handling)])
def test_a_training_setting_with_a_forgotten_answer_does_not_construct(copy: Path, answer: str) -> None:
    given = re.sub(rf"{answer}=(\(.*?\)|\w+)(, )?", "", SETTING)
    assert len(given) < len(SETTING)
    add_setting(copy, given)
    used = run_in(copy, sys.executable, "-c", "import trainer.contract.settings")
    assert f"TypeError: Handling.__init__() missing 1 required positional argument: '{answer}'" in used.stderr


def test_no_second_list_of_training_settings_exists() -> None:
    """Such a list would have to be remembered by everybody who adds a setting."""
    collections = (ast.Tuple, ast.List, ast.Set, ast.Dict)
    lists = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, collections) and len(RULES.keys() & set(texts_in(node))) > 3
    ]
    assert lists == [], "make it an answer of the settings: Handling in trainer/contract/settings.py"


def texts_in(node: ast.Tuple | ast.List | ast.Set | ast.Dict) -> list[str]:
    """Return the texts among the elements, or the keys, of a collection in code."""
    parts = node.keys if isinstance(node, ast.Dict) else node.elts
    return [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]


def test_a_new_model_can_be_chosen_and_is_in_the_tables(copy: Path) -> None:
    (copy / "trainer/model/models/parabola.py").write_text(MODEL)
    (copy / "trainer/model/models/.#parabola.py").write_text("what an editor keeps")
    make_docs(copy)
    assert ", parabola, " in options(copy)["trainer_model"]["description"]
    assert ", parabola, " in (copy / "roles/trainer/README.md").read_text(encoding="utf-8")
    page = (copy / "docs/models.md").read_text(encoding="utf-8")
    assert (
        "| `parabola` | A parabola, by its coefficients. | `adam` 0.25, `sgd` 1 | `hidden_units` |\n" in page
    )
    goals = "`loss` (lower), `slope` | `loss` at least 0 and at most 0.5 | at most 0.75"
    assert f"| `parabola` | {goals} |\n" in page
    assert "Of the models C(cnn), C(mnist_mlp), C(parabola)." in " ".join(
        options(copy)["trainer_hidden_units"]["description"].split()
    )


def test_a_page_without_a_mark_is_named(copy: Path) -> None:
    page = copy / "docs/contracts.md"
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace("end of fields of a program", "end"), encoding="utf-8")
    with pytest.raises(ValueError, match=r"contracts.md has 0 places for 'fields of a program'"):
        generated_texts(copy)
