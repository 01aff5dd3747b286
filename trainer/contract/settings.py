"""The training settings: names, types, ranges and defaults, in one place for the trainer and the inventory.

Setting `X` is the trainer's flag `--X` and the inventory variable `trainer_X`.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any

from trainer.host.wording import cut

MODELS = ("linear", "mnist_mlp", "cnn", "placement_demo", "partition")
OPTIMIZERS = ("sgd", "momentum", "adagrad", "adam")
MOST_STEPS_PER_CALL = 32
REPLICATIONS = ("async", "sync", "in_graph", "local")

# A host may set these for itself, because its hardware or its disks differ; the others are the cluster's.
PER_HOST = frozenset({"batch_size", "data_dir", "gpu_memory_fraction", "threads"})

# Flags are split at blanks by systemd, which also expands $ and quotes.
_PLAIN_ABSOLUTE_PATH_OR_NONE = re.compile(r"(/[^\s\"'\\$`]*)?")
_NULLS = ("", "null", "none", "~")
LONGEST_TOLD = 300
_TRUE, _FALSE = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}


@dataclass(frozen=True)
class SettingProblem:
    """One value that cannot be used: the setting's name, the value given, and what is expected instead."""

    name: str
    value: object
    expected: str

    def __str__(self) -> str:
        """Return the problem in one line."""
        return f"{self.name} is {as_given(self.value)}; expected {self.expected}"


def as_given(value: object) -> str:
    """Return a value as people gave it, cut where it is long."""
    try:
        return cut(repr(value), LONGEST_TOLD)
    except (ValueError, RecursionError):  # Python writes no integer of thousands of digits
        return "more than can be told"


class SettingsError(ValueError):
    """Settings that cannot be used; `problems` holds every one of them."""

    def __init__(self, problems: Sequence[SettingProblem]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


@dataclass(frozen=True)
class Rule:
    """What a setting accepts: `convert` returns the value, or raises ValueError unless it is as expected.

    Where parts of the value are wrong, SettingsError names them as behind the setting's name: "[1].port".
    """

    expected: str
    convert: Callable[[object], object]


def convert_all(
    values: Mapping[str, object], rules: Mapping[str, Rule], unknown: Callable[[str], str], prefix: str = ""
) -> tuple[dict[str, Any], list[SettingProblem]]:
    """Return the values that their rules take, converted, and a problem for each of the others.

    `unknown` says what is expected in place of a name that has no rule; `prefix` stands before each name.
    """
    converted: dict[str, Any] = {}
    problems: list[SettingProblem] = []
    for name, value in values.items():
        rule = rules.get(name) or Rule(unknown(name), _refuse)
        try:
            converted[name] = rule.convert(value)
        except SettingsError as error:  # parts of the value are wrong
            problems += [replace(part, name=f"{prefix}{name}{part.name}") for part in error.problems]
        except ValueError:
            problems.append(SettingProblem(f"{prefix}{name}", value, rule.expected))
    return converted, problems


def converted(
    values: Mapping[str, object],
    rules: Mapping[str, Rule],
    unknown: Callable[[str], str] = str,
    prefix: str = "",
) -> dict[str, Any]:
    """Return what `convert_all` converts. Raises SettingsError with every problem."""
    taken, problems = convert_all(values, rules, unknown, prefix)
    if problems:
        raise SettingsError(problems)
    return taken


def close_names(what: str, names: Collection[str], prefix: str = "") -> Callable[[str], str]:
    """Return what says of another name that `what` is expected: the closest one, else all there are."""

    def expected(name: str) -> str:
        close = get_close_matches(str(name), names, n=1)
        return f"{what} (did you mean {prefix}{close[0]}?)" if close else f"{what}: {', '.join(names)}"

    return expected


def _refuse(value: object) -> object:
    raise ValueError(value)


def to_integer(value: object) -> int:
    """Return 7 for 7 and for "7"; raises ValueError for anything else, such as True, 1.5 or "many"."""
    given = value
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]+\s*", value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(given)
    if value.bit_length() > 63:  # TensorFlow counts in 64 bits
        raise SettingsError([SettingProblem("", given, "an integer below 2**63")])
    return int(value)


def to_number(value: object) -> float:
    """Return 0.5 for 0.5 and for "0.5"; raises ValueError for anything that is no finite number."""
    number = float(str(value))  # "True" and "[1]" are no numbers, and an integer beyond all floats is inf
    if not math.isfinite(number):
        raise ValueError(value)
    return number


def to_text(value: object) -> str:
    """Return a text; raises ValueError for anything else."""
    if not isinstance(value, str):
        raise ValueError(value)
    return value


def _to_boolean(value: object) -> bool:
    word = str(value).strip().lower()
    if word not in _TRUE | _FALSE:
        raise ValueError(value)
    return word in _TRUE


def checked(expected: str, convert: Callable[[object], Any], fits: Callable[[Any], object]) -> Rule:
    """Return the rule for what `convert` takes, where it `fits` then."""

    def fitting(value: object) -> object:
        converted = convert(value)
        if not fits(converted):
            raise ValueError(value)
        return converted

    return Rule(expected, fitting)


def integer(minimum: int, maximum: int | None = None) -> Rule:
    """Return the rule for whole numbers of the range; a bool or 1.5 is none, the string "7" is."""
    span = f"from {minimum} to {maximum}" if maximum else f">= {minimum}"
    return checked(f"an integer {span}", to_integer, lambda whole: minimum <= whole <= (maximum or whole))


def number(minimum: float, maximum: float = math.inf, *, exclusive: bool = False) -> Rule:
    """Return the rule for finite numbers of the range, `exclusive` of its minimum; "0.5" is one."""
    most = f" and <= {maximum:g}" if maximum < math.inf else ""
    span = f"{'>' if exclusive else '>='} {minimum:g}{most}"
    if most and not exclusive:
        span = f"from {minimum:g} to {maximum:g}"
    return checked(
        f"a number {span}",
        to_number,
        lambda real: minimum <= real <= maximum and not (exclusive and real == minimum),
    )


# As Ansible reads them, "yes" and "off" too.
BOOLEAN = Rule("true or false", _to_boolean)


def _choice(*names: str) -> Rule:
    return checked(f"one of {', '.join(names)}", lambda value: to_text(value).strip(), names.__contains__)


def or_null(rule: Rule, meaning: str = "the model's own") -> Rule:
    """Return the rule that also takes null, which stands for `meaning`."""

    def convert(value: object) -> object:
        absent = value is None or (isinstance(value, str) and value.strip().lower() in _NULLS)
        return None if absent else rule.convert(value)

    return Rule(f"{rule.expected}, or null for {meaning}", convert)


def setting(default: object, rule: Rule) -> Any:  # noqa: ANN401 - as dataclasses.field, it stands for any type
    """Return a dataclass's field with its default, and the rule in its metadata."""
    return field(default=default, metadata={"rule": rule})


@dataclass(frozen=True)
class TrainingSettings:
    """Everything a run can be told about training; docs/contracts.md says what each setting means.

    Build it by `from_mapping` where the values come from people: the constructor checks nothing.
    """

    model: str = setting("mnist_mlp", _choice(*MODELS))
    replication: str = setting("async", _choice(*REPLICATIONS))
    replicas_to_aggregate: int | None = setting(None, or_null(integer(1), "as many as there are workers"))
    existing_servers: bool = setting(False, BOOLEAN)
    steps: int = setting(2000, integer(1))
    epochs: int = setting(0, integer(0))
    steps_per_call: int = setting(10, integer(1, MOST_STEPS_PER_CALL))
    pull_ahead: bool = setting(False, BOOLEAN)
    wire_dtype: str = setting("float32", _choice("float32", "bfloat16"))
    batch_size: int = setting(100, integer(1))
    learning_rate: float | None = setting(None, or_null(number(0, exclusive=True)))
    optimizer: str | None = setting(None, or_null(_choice(*OPTIMIZERS)))
    hidden_units: int = setting(100, integer(1))
    activation: str = setting("sigmoid", _choice("sigmoid", "relu"))
    steps_to_validate: int = setting(100, integer(1))
    checkpoint_interval_seconds: float = setting(60.0, number(0, exclusive=True))
    checkpoint_interval_steps: int = setting(0, integer(0))
    checkpoints_to_keep: int = setting(3, integer(1))
    summary_steps: int = setting(100, integer(0))
    data_dir: str = setting(
        "",
        checked(
            "an absolute path on the hosts without blanks, quotes or $, or empty for the bundled digits",
            lambda value: "" if value is None else to_text(value),
            lambda path: path.isprintable() and _PLAIN_ABSOLUTE_PATH_OR_NONE.fullmatch(path),
        ),
    )
    shard_data: bool = setting(False, BOOLEAN)
    threads: int | None = setting(None, or_null(integer(1), "the cores of the host, shared by its tasks"))
    gpu_memory_fraction: float | None = setting(
        None, or_null(number(0, 1, exclusive=True), "memory taken as it is needed")
    )
    seed: int = setting(1, integer(0))
    barrier_deadline_seconds: float = setting(120.0, number(0))

    @classmethod
    def from_mapping(cls, values: Mapping[str, object]) -> "TrainingSettings":
        """Return the settings that `values` give, defaults for the others.

        Strings are taken as what they mean: "7" is 7, "null" is None where that is allowed. Raises
        SettingsError with every name that does not exist and every value that its rule refuses.
        """
        return cls(**converted(values, RULES, close_names("a setting that exists", RULES)))

    def gradients_in_a_step(self, workers: int) -> int:
        """Return how many gradients a global step applies the mean of, where so many workers learn."""
        if self.replication == "sync":
            return self.replicas_to_aggregate or workers
        return workers if self.replication == "in_graph" else 1

    def as_dict(self) -> dict[str, str | int | float | None]:
        """Return name -> value of every setting."""
        return asdict(self)


def flags_of(values: Mapping[str, object]) -> list[str]:
    """Return the trainer's flags of settings, such as "--model=linear"; what is None or empty is left out."""
    return [f"--{name}={_flag_text(value)}" for name, value in values.items() if value not in (None, "")]


RULES: Mapping[str, Rule] = {setting.name: setting.metadata["rule"] for setting in fields(TrainingSettings)}


def replication_problems(
    settings: Mapping[str, Any], workers: int | None, prefix: str = ""
) -> dict[str, str]:
    """Return setting -> what it cannot say beside the others, and with so many workers (None: not known).

    `settings` may lack some; `prefix` is what people write before the name of a setting.
    """
    replication, replicas = settings.get("replication"), settings.get("replicas_to_aggregate")
    problems = {}
    if replicas and replication in set(REPLICATIONS) - {"sync"}:
        problems["replicas_to_aggregate"] = (
            f"{prefix}replicas_to_aggregate is {replicas} with {prefix}replication {replication!r}; "
            f"expected null, or {prefix}replication sync"
        )
    elif replicas and workers and replicas > workers:
        problems["replicas_to_aggregate"] = (
            f"{prefix}replicas_to_aggregate is {replicas}; expected at most {workers}, the number of workers"
        )
    if settings.get("pull_ahead") and replication in set(REPLICATIONS) - {"async"}:
        problems["pull_ahead"] = (
            f"{prefix}pull_ahead is true with {prefix}replication {replication!r}; "
            f"expected false, or {prefix}replication async"
        )
    if settings.get("existing_servers") and replication == "local":
        problems["existing_servers"] = (
            f"{prefix}existing_servers is true with {prefix}replication 'local', which has no servers; "
            "expected false, or another replication"
        )
    return problems


def _flag_text(value: object) -> str:
    """Return 60 rather than 60.0, and true rather than True: people compare it with what they wrote."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
