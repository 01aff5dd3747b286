"""The generated parts of pages and roles are as `make docs` writes them."""

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
from tools.written_docs import written
from trainer.contract.settings import Handling

ROOMS = ("trainer", "psfleet", "plugins", "tools")
SETTING = """\
    clipped_norm: float | None = entry(
        2.5,
        or_null(number(0), "gradients as they are"),
        "The largest norm | of a `gradient`. It is new.",
        Handling(per_host=False, fixed_in_a_run=True, reset_by_prove=True, with_tables=(None, 2.5)),
    )
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
        for path, text in written(ROOT).items()
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


@pytest.mark.parametrize("answer", [each.name for each in fields(Handling)])
def test_a_training_setting_with_a_forgotten_answer_does_not_construct(copy: Path, answer: str) -> None:
    given = re.sub(rf"{answer}=(\(.*?\)|\w+)(, )?", "", SETTING)
    assert len(given) < len(SETTING)
    add_setting(copy, given)
    used = run_in(copy, sys.executable, "-c", "import trainer.contract.settings")
    assert f"TypeError: Handling.__init__() missing 1 required positional argument: '{answer}'" in used.stderr


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
        written(copy)
