"""`make docs` (`python -m tools.written_docs`): write what follows from the code into pages and roles.

What it writes stands between two lines that say so; people write the rest of those files. It imports no
TensorFlow, so it reads what it says about a model from the text of the model's file.
"""

import ast
import json
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import yaml

import psfleet.evidence.verdict  # noqa: F401 - with it CARDS has every check
from psfleet.evidence.card import ALWAYS, CARDS, Card, Group, checks_of
from psfleet.run.settings_file import RunSettings
from trainer.contract.json_objects import JsonObject
from trainer.contract.model_card import NEITHER
from trainer.contract.model_card import Card as ModelCard
from trainer.contract.model_files import MODELS, read_card
from trainer.contract.rules import BOOLEAN
from trainer.contract.run_program import RunProgram
from trainer.contract.settings import (
    FIXED_IN_A_RUN,
    PER_HOST,
    RESET_BY_PROVE,
    RULES,
    TrainingSettings,
    default_text,
    meaning,
)

ROOT = Path(__file__).resolve().parents[1]
_TYPES = {int: "int", float: "float", bool: "bool", str: "str"}
_WIDTH = 118
_BAR = "\\|"  # in a cell of a table
LONGEST_CELL = 200


def generated_texts(root: Path) -> dict[Path, str]:
    """Return {file: its whole text, as it should be} for each file with generated parts.

    It writes nothing. Raises ValueError if a file does not have exactly one place for such a part.
    """
    parts: dict[str, dict[str, str]] = {
        "docs/contracts.md": {
            "fields of a program": "\n" + _fields_table(RunProgram),
            "fields of settings.json": "\n" + _fields_table(RunSettings),
        },
        "docs/operations.md": {"settings that a run keeps": "\n" + _variables_paragraph(FIXED_IN_A_RUN)},
        "docs/prove.md": {"settings that prove.yml replaces": "\n" + _variables_paragraph(RESET_BY_PROVE)},
        "docs/verdict.md": {"checks": "\n" + _checks()},
        "docs/models.md": {
            "models": "\n" + _models_table(root),
            "goals": "\n" + _goals_table(root),
            "fields of a card": "\n" + _fields_table(ModelCard),
        },
        "roles/trainer/README.md": {"training settings": "\n" + _variables_table()},
        "roles/trainer/defaults/main.yml": {"training settings": _defaults()},
        "roles/trainer/meta/argument_specs.yml": {"training settings": _argument_specs()},
    }
    return {root / name: _with_parts(root / name, texts) for name, texts in parts.items()}


def _with_parts(path: Path, parts: Mapping[str, str]) -> str:
    """Return the text of a file with its generated parts replaced; `parts` is {name: new text}.

    A part stands between two lines with its name. Raises ValueError if the file does not have exactly one
    such place. In Markdown, the new text begins with an empty line.
    """
    text = path.read_text(encoding="utf-8")
    for name, part in parts.items():
        marks = rf"^[^\n]*made by `make docs`: {name}\b[^\n]*\n(.*?)^[^\n]*\bend of {name}\b"
        found = [*re.finditer(marks, text, flags=re.DOTALL | re.MULTILINE)]
        if len(found) != 1:
            raise ValueError(
                f"{path} has {len(found)} places for {name!r}; expected one, between a line with "
                f"'made by `make docs`: {name}' and one with 'end of {name}'"
            )
        text = text[: found[0].start(1)] + part + text[found[0].end(1) :]
    return text


def _table(heading: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown; | in a cell is escaped."""
    heading_line, *lines = (
        f"| {' | '.join(cell.replace('|', _BAR) for cell in row)} |\n" for row in [heading, *rows]
    )
    return "".join([heading_line, f"|{'---|' * len(heading)}\n", *lines])


def _variables_paragraph(settings: Iterable[str]) -> str:
    """Return a paragraph with the variables of these settings, such as "`trainer_model`, `trainer_steps`"."""
    return ", ".join(f"`trainer_{name}`" for name in settings) + "\n"


def _checks() -> str:
    """Return Markdown: for each group of checks a heading and a list of its checks, sorted by name."""
    return "\n".join(
        f"**{group.value.capitalize()}**\n\n"
        + "".join(_check(name, CARDS[name]) for name in sorted(checks_of(group)))
        for group in Group
    )


def _check(name: str, card: Card) -> str:
    """Return an item of a Markdown list: to which runs a check applies, and what its answers mean."""
    lines = [f"- `{name}` ({_applies_to(card)}): {card.holds}", f"  - false: {card.fails}"]
    return "\n".join([*lines, f"  - unknown: {card.unknown}"]) + "\n"


def _applies_to(card: Card) -> str:
    """Return the kinds of runs to which a check applies, in words.

    Example: "models; programs if psfleet observed its sessions"
    """
    if card.models == card.programs:
        return f"models and programs {card.models}"
    runs = {"models": card.models, "programs": card.programs}
    return "; ".join(kind if when == ALWAYS else f"{kind} {when}" for kind, when in runs.items() if when)


def _fields_table(of: type[JsonObject]) -> str:
    rows = (
        (f"`{each.name}`", _json_default(each), each.metadata["rule"].expected, each.metadata["meaning"])
        for each in fields(of)
    )
    return _table(("field", "default", "expected", "meaning"), rows)


def _json_default(of: Field[Any]) -> str:
    default = of.default if of.default_factory is MISSING else of.default_factory()
    return "" if default is MISSING else f"`{json.dumps(default)}`"


def _variables_table() -> str:
    """Return Markdown: a table of all training settings, with default and meaning.

    Of a long meaning, the table has the first sentence, and a list below the table has the rest.
    """
    cells = {name: _whole_meaning(name) for name in RULES}
    more = []
    for name, text in cells.items():
        first, _, rest = text.partition(". ")
        if len(text) > LONGEST_CELL:
            cells[name] = f"{first}."
            more.append(f"- `trainer_{name}`: {rest}\n")
    rows = ((f"`trainer_{name}`", f"`{_yaml(name)}`", text) for name, text in cells.items())
    table = _table(("variable", "default", "meaning"), rows)
    return "\n".join([table, "More about some of them:\n", "".join(more)])


def _defaults() -> str:
    return "".join(f"trainer_{name}: {_yaml(name)}\n" for name in RULES)


def _argument_specs() -> str:
    return "".join(line for name in RULES for line in _option(name))


def _option(name: str) -> Iterator[str]:
    description = re.sub(r"`([^`]+)`", r"C(\1)", _whole_meaning(name))
    kind = get_type_hints(TrainingSettings)[name]
    yield f"      trainer_{name}:\n        description: >-\n"
    indent = " " * 10
    yield textwrap.fill(description, _WIDTH, initial_indent=indent, subsequent_indent=indent) + "\n"
    # `raw` where null is allowed: with another type Ansible would refuse the text "null", which -e gives.
    yield f"        type: {_TYPES.get(kind, 'raw')}\n"
    if RULES[name].choices:
        yield f"        choices: [{', '.join(RULES[name].choices)}]\n"
    yield f"        default: {_yaml(name)}\n"


def _whole_meaning(name: str) -> str:
    """Return sentences about a setting: its meaning, what is expected, and which models use it.

    They also say so if it may differ by host.
    """
    expected = RULES[name].expected
    sentences = [meaning(name)]
    sentences += [] if RULES[name] is BOOLEAN else [f"{expected[0].upper()}{expected[1:]}."]
    sentences += [f"Of the models {', '.join(map(_code, of))}."] if (of := _models_with(name)) else []
    return " ".join([*sentences, *(["May differ by host."] if name in PER_HOST else [])])


def _models_with(setting: str) -> list[str]:
    """Return the names of the models whose cards name this setting; [] for a setting of every model."""
    return [name for name, card in _cards(ROOT).items() if setting in card.settings]


def _yaml(name: str) -> str:
    """Return the default of a setting as YAML, such as "0.01".

    A text that YAML would read as something else is quoted.
    """
    text = default_text(name)
    is_text = isinstance(TrainingSettings.__dataclass_fields__[name].default, str)
    return json.dumps(text) if is_text and yaml.safe_load(text) != text else text


def _models_table(root: Path) -> str:
    rows = (
        (f"`{name}`", _learns(root, name), _rates(card), ", ".join(map(_code, card.settings)))
        for name, card in _cards(root).items()
    )
    heading = ("model", "learns", "optimizer and learning rate, the default first", "its settings")
    return _table(heading, rows)


def _goals_table(root: Path) -> str:
    rows = (
        (
            f"`{name}`",
            ", ".join(map(_metric, card.metrics.items())),
            "; ".join(f"`{metric}` {_goal(goal)}" for metric, goal in card.goals.items()),
            _target_loss(card),
        )
        for name, card in _cards(root).items()
    )
    return _table(
        ("model", "metrics, and which are better", "goals of the final model", "training loss"), rows
    )


@cache
def _cards(root: Path) -> dict[str, ModelCard]:
    return {name: read_card(_model_file(root, name)) for name in MODELS}


def _model_file(root: Path, name: str) -> Path:
    return root / "trainer" / "model" / "models" / f"{name}.py"


def _learns(root: Path, name: str) -> str:
    """Return the first paragraph of the docstring of a model's file, in one line; "" without a docstring."""
    module = ast.parse(_model_file(root, name).read_text(encoding="utf-8"))
    return (ast.get_docstring(module) or "").partition("\n\n")[0].replace("\n", " ")


def _rates(card: ModelCard) -> str:
    rates = ", ".join(f"`{optimizer}` {rate:g}" for optimizer, rate in card.learning_rates.items())
    return f"{rates}; `sgd` and `momentum` for each gradient in a step" if card.rates_per_gradient else rates


def _metric(metric: tuple[str, str]) -> str:
    name, better = metric
    return f"`{name}`" if better == NEITHER else f"`{name}` ({better})"


def _goal(goal: Mapping[str, Any]) -> str:
    """Return the range that a goal on a model's card permits, in words, such as "at least 0.95"."""
    if "target" in goal:
        return f"{goal['target']:g} +- {goal['tolerance']:g}"
    words = {"minimum": "at least", "maximum": "at most"}
    return " and ".join(f"{of} {_beside_level(goal, bound)}" for bound, of in words.items() if bound in goal)


def _beside_level(goal: Mapping[str, Any], bound: str) -> str:
    value = goal[bound]
    if "level" not in goal:
        return f"{value:g}"
    return f"{abs(value):g} {'below' if value < 0 else 'above'} `{goal['level']}`"


def _target_loss(card: ModelCard) -> str:
    target = card.target_loss
    if target is None:
        return "no target"
    return f"at most {_beside_level(target, 'maximum') if isinstance(target, Mapping) else f'{target:g}'}"


def _code(name: str) -> str:
    return f"`{name}`"


def main() -> None:
    """Write the files whose generated parts are out of date, and print their names."""
    for path, text in generated_texts(ROOT).items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"written: {path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
