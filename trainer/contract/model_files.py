"""The files of models: the built-in ones, and the cards that are read from files without executing them.

A model's file has its card as a literal, `CARD = {...}`. The file's name is the model's name.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from trainer.contract.model_card import Card
from trainer.contract.rules import Rule, as_given, close_names, convert_all, to_text

VARIABLE = "CARD"
_FOLDER = Path(__file__).resolve().parents[1] / "model" / "models"
_MOST_BYTES = 1_000_000
# Flags are split at blanks by systemd, which also expands $ and quotes.
_FILE = re.compile(r"(/[A-Za-z0-9_.+-]+)*/(?P<name>[A-Za-z_][A-Za-z0-9_]*)\.py")


class CardError(ValueError):
    """A model's file cannot be read, or has no valid card.

    `problems` has a text for each problem, with the file and, if known, the line.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def models_in(folder: Path) -> tuple[str, ...]:
    """Return the names of the models that have a Python file in a folder, sorted; () if there are none.

    Files whose names begin with "_", and model.py, are no models. Example: cnn.py -> "cnn"
    """
    names = {path.stem for path in folder.glob("[!_]*.py")} - {"model"}
    return tuple(sorted(name for name in names if name.isidentifier()))


# The built-in models. Whoever reads their cards need not have TensorFlow, which the models import.
MODELS = models_in(_FOLDER)


def _to_model(value: object) -> str:
    model = to_text(value).strip()
    if model not in MODELS and not is_model_path(model):
        raise ValueError(value)
    return model


MODEL_RULE = Rule(
    f"one of {', '.join(MODELS)}, or the path of a model's file, such as ~/models/mine.py", _to_model
)


def is_model_path(model: str) -> bool:
    """Return whether `model` is the absolute path of a Python file; the file need not exist.

    Examples: "/opt/my_model.py" -> True; "my_model.py", "cnn" and "/opt/my model.py" -> False
    """
    return _FILE.fullmatch(model) is not None


def model_name(model: str) -> str:
    """Return the name of a model: `model` itself, or the file's name without ".py" if `model` is its path.

    Example: model_name("/opt/psfleet/programs/0a1b2c3d4e5f/my_model.py") -> "my_model"
    """
    path = _FILE.fullmatch(model)
    return path["name"] if path else model


def card_of(model: str) -> Card | None:
    """Return the card of a model, given as a built-in model's name or as the path of a model's file.

    Return None for a name that is no built-in model's. Raises CardError if the file cannot be read or has no
    valid card.
    """
    return read_card(Path(model)) if is_model_path(model) else built_in_card(model)


@cache
def built_in_card(model: str) -> Card | None:
    """Return the card of a built-in model; None if there is no built-in model of this name.

    Raises CardError if the model's file has no valid card.
    """
    return read_card(_FOLDER / f"{model}.py") if model in MODELS else None


def read_card(path: Path) -> Card:
    """Return the card in a model's file; the code in the file is not executed.

    Raises CardError with every problem: the file cannot be read, is no Python, or has no valid card.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        what = f"{path} cannot be read ({error.strerror})"
        raise CardError([f"{what}; expected a model's Python file"]) from error
    if len(content) > _MOST_BYTES:
        raise CardError([f"{path} has more than {_MOST_BYTES:,} bytes; expected a model's Python file"])
    try:
        module = ast.parse(content)
    except SyntaxError as error:
        raise CardError([f"{path}:{error.lineno or 1}: {error.msg}; expected Python"]) from error
    except (ValueError, RecursionError, MemoryError) as error:  # null bytes; too deep for the parser
        raise CardError([f"{path} cannot be parsed; expected Python"]) from error
    literals = [value for node in module.body if (value := _card_in(node)) is not None]
    if len(literals) != 1:
        found = "has no card" if not literals else f"has {len(literals)} cards"
        raise CardError([f"{path} {found}; expected one {VARIABLE} = {{...}}, as docs/models.md shows"])
    return _checked(path, literals[0])


def _card_in(node: ast.stmt) -> ast.expr | None:
    """Return the expression that a statement assigns to CARD; None for any other statement."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    is_card = any(isinstance(target, ast.Name) and target.id == VARIABLE for target in targets)
    return getattr(node, "value", None) if is_card else None


def _checked(path: Path, literal: ast.expr) -> Card:
    try:
        values = ast.literal_eval(literal)
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        line = next(filter(None, map(_computed_line, ast.walk(literal))), literal.lineno)
        what = f"{path}:{line}: {VARIABLE} has more than literals"
        raise CardError([f"{what}; expected texts, numbers, lists and mappings"]) from error
    if not isinstance(values, dict):
        raise CardError([f"{path}:{literal.lineno}: {VARIABLE} is {as_given(values)}; expected a mapping"])
    rules = {name: each.metadata["rule"] for name, each in Card.__dataclass_fields__.items()}
    accepted, refused = convert_all(values, rules, close_names("a field of a card", rules))
    problems = [f"{path}:{_line(literal, each.name)}: {VARIABLE}: {each}" for each in refused]
    if "learning_rates" not in values:
        what = "learning_rates is missing"
        problems.append(
            f"{path}:{literal.lineno}: {VARIABLE}: {what}; expected {rules['learning_rates'].expected}"
        )
    known = accepted.get("metrics", {})
    for name in accepted.get("goals", {}):
        if name not in known and not any(each.name.startswith("metrics") for each in refused):
            what = f"goals has {as_given(name)}, which is no metric of the card"
            problems.append(f"{path}:{_line(literal, f'goals.{name}')}: {VARIABLE}: {what}; {_one_of(known)}")
    if problems:
        raise CardError(problems)
    return Card(**accepted)


def _one_of(names: Mapping[str, object]) -> str:
    return f"expected one of {', '.join(names)}" if names else "expected it in metrics, too"


def _computed_line(node: ast.AST) -> int | None:
    """Return the line number of an expression that no literal has, such as a call; None for other nodes."""
    literals = (ast.Constant, ast.Dict, ast.List, ast.Tuple, ast.UnaryOp)
    return node.lineno if isinstance(node, ast.expr) and not isinstance(node, literals) else None


def _line(node: ast.expr, name: str) -> int:
    """Return the line number of the key `name`, such as "goals.loss.maximum", in the literal of a mapping.

    If there is no such key, return the line of the last key on the way to it, here "goals.loss" or "goals";
    if there is none, the line where `node` begins.
    """
    line = node.lineno
    while isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        keys = {str(key.value): (key, value) for key, value in pairs if isinstance(key, ast.Constant)}
        key = next((key for key in keys if f"{name}.".startswith(f"{key}.")), None)
        if key is None:
            break
        line, node, name = keys[key][0].lineno, keys[key][1], name.removeprefix(key).removeprefix(".")
    return line
