"""The training settings: each is one entry with all that is to know of it; `make docs` writes the rest.

Setting `X` is the inventory variable `trainer_X`, a field of the file that a task gets with `--settings`, and
the trainer's flag `--X`.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from trainer.contract.model_card import OPTIMIZERS
from trainer.contract.model_files import MODEL_RULE
from trainer.contract.rules import (
    BOOLEAN,
    Rule,
    checked,
    choice,
    close_names,
    converted,
    integer,
    number,
    or_null,
    to_text,
)
from trainer.contract.stop_condition import StopCondition
from trainer.contract.table_models import FEWEST_ROWS, ROW_OPTIMIZERS

DAMPED_OPTIMIZERS = ("momentum", "adam")
GENERATED_WHERE_THE_GRAPH_IS = (
    "clicks are only generated in the process that has the graph, not with in_graph, nor with "
    "trainer_existing_servers"
)
MOST_STEPS_PER_CALL = 32
MOST_PUSH_EVERY, MOST_PULL_EVERY = 64, 256
REPLICATIONS = ("async", "sync", "in_graph", "local")

# Of a setting that any model takes, whether it has tables or not.
ANY: tuple[object, ...] = ()


@dataclass(frozen=True)
class Handling:
    """How a setting is handled; every setting gives all four answers.

    Attributes:
        per_host: whether a host may have a value of its own, because its hardware or its disks differ.
        fixed_in_a_run: whether a resumed run keeps the value: checkpoints, examples, counts of gradients or
            the set of tasks depend on it.
        reset_by_prove: whether prove.yml trains with the default or with a value of its own, not the user's.
        with_tables: the values that a model with tables takes; ANY, which is (), if it takes all.

    """

    per_host: bool
    fixed_in_a_run: bool
    reset_by_prove: bool
    with_tables: tuple[object, ...]


def entry(default: object, rule: Rule, meaning: str, handling: Handling) -> Any:  # noqa: ANN401 - as dataclasses.field
    """Return the dataclass field for a training setting, with rule, meaning and handling in its metadata.

    `meaning` is Markdown, and its first sentence a summary. It does not repeat what the rule expects.
    """
    return field(default=default, metadata={"rule": rule, "meaning": meaning, "handling": handling})


def _to_condition(value: object) -> str:
    """Return a stop condition with one blank between its parts, such as "auc > 0.77"; "" for None or "".

    Raises ValueError if the value is no text, or no condition.
    """
    text = "" if value is None else to_text(value).strip()
    return str(StopCondition.from_text(text)) if text else ""


@dataclass(frozen=True)
class TrainingSettings:
    """The training settings of one task.

    Build it by `from_mapping` where the values come from people: the constructor checks nothing.
    """

    model: str = entry(
        "mnist_mlp",
        MODEL_RULE,
        "The model to train (docs/models.md): a built-in model, or the file of your own model on the "
        "controller, which `deploy.yml` carries to the hosts.",
        Handling(per_host=False, fixed_in_a_run=True, reset_by_prove=True, with_tables=ANY),
    )
    replication: str = entry(
        "async",
        choice(*REPLICATIONS),
        "How the workers train one model. `async`: a graph for each worker, gradients applied as they come. "
        "`sync`: a graph for each worker, gradients averaged before they are applied. `in_graph`: worker 0 "
        "alone has a graph, with a tower on every worker, and averages. `local`: worker 0 alone, without ps.",
        Handling(
            per_host=False,
            fixed_in_a_run=True,
            reset_by_prove=True,
            with_tables=("async", "sync", "local"),
        ),
    )
    replicas_to_aggregate: int | None = entry(
        None,
        or_null(integer(1), "as many as there are workers"),
        "Gradients that make a global step when `trainer_replication` is `sync`, at most one from each "
        "worker. The other workers are backups: a step does not wait for the slowest.",
        Handling(per_host=False, fixed_in_a_run=True, reset_by_prove=True, with_tables=ANY),
    )
    existing_servers: bool = entry(
        False,
        BOOLEAN,
        "Whether servers run as units of their own (`psfleet-server@<index>`), and the workers connect to "
        "them as clients. Not with `local`.",
        Handling(per_host=False, fixed_in_a_run=True, reset_by_prove=True, with_tables=ANY),
    )
    steps: int = entry(
        2000,
        integer(1),
        "Global steps of a run, over all workers together.",
        Handling(per_host=False, fixed_in_a_run=False, reset_by_prove=True, with_tables=ANY),
    )
    epochs: int = entry(
        0,
        integer(0),
        "Passes over the training examples. Above 0, it sets the number of steps in place of "
        "`trainer_steps`: ceil(epochs x training examples / examples of a global step). The examples of a "
        "global step are the chief's batch size times `trainer_push_every` times the gradients in a step.",
        Handling(per_host=False, fixed_in_a_run=False, reset_by_prove=True, with_tables=ANY),
    )
    steps_per_call: int = entry(
        10,
        integer(1, MOST_STEPS_PER_CALL),
        "The most steps that a worker takes in one call into TensorFlow; with `in_graph` always 1. A call "
        "has fewer steps if they would last more than 50 ms, if a save or a line of output is due before, "
        "and near the end. With `trainer_push_every` above 1, this counts batches.",
        Handling(per_host=False, fixed_in_a_run=False, reset_by_prove=False, with_tables=ANY),
    )
    pull_ahead: bool = entry(
        False,
        BOOLEAN,
        "Whether a worker pulls the parameters of its next step while a step computes, with several steps in "
        "a call and `trainer_replication` `async`. The parameters then lack the update of the step before, "
        "and a call may last half a second rather than 50 ms.",
        Handling(per_host=False, fixed_in_a_run=False, reset_by_prove=True, with_tables=ANY),
    )
    push_every: int = entry(
        1,
        integer(1, MOST_PUSH_EVERY),
        "Batches in a worker's training step. Above 1, a worker changes its own copy of the parameters after "
        "each batch, and pushes the mean of the gradients once, as Downpour SGD does. With 8, a batch costs "
        "an eighth of the network traffic; a push is one global step, and the optimizer applies it like 8 "
        "steps. Not with `local`.",
        Handling(per_host=False, fixed_in_a_run=True, reset_by_prove=True, with_tables=(1,)),
    )
    pull_every: int | None = entry(
        None,
        or_null(integer(1, MOST_PULL_EVERY), "the value of trainer_push_every"),
        "Batches between two pulls of the parameters: a multiple of `trainer_push_every`, with "
        "`trainer_replication` `async`. A worker pulls earlier at the beginning, if a save or a line of "
        "output is due before, and near the end.",
        Handling(per_host=False, fixed_in_a_run=False, reset_by_prove=True, with_tables=(None, 1)),
    )
    wire_dtype: str = entry(
        "float32",
        choice("float32", "bfloat16"),
        "Type of parameters and gradients on the network between workers and ps. `bfloat16` halves the bytes "
        "and rounds the values for the transfer; ps, checkpoints and the workers' computation use `float32`.",
        Handling(per_host=False, fixed_in_a_run=False, reset_by_prove=False, with_tables=ANY),
    )
    staleness: str = entry(
        "plain",
        choice("plain", "damped"),
        "How gradients that miss the newest steps of other workers are applied, with `trainer_replication` "
        "`async`. `plain`: as usual. `damped`: most of a step follows the mean of many past gradients, "
        "so several workers need fewer examples; with the optimizers `momentum` and `adam`.",
        Handling(per_host=False, fixed_in_a_run=True, reset_by_prove=True, with_tables=("plain",)),
    )
    batch_size: int = entry(
        100,
        integer(1),
        "Examples in a worker's batch.",
        Handling(per_host=True, fixed_in_a_run=False, reset_by_prove=False, with_tables=ANY),
    )
    learning_rate: float | None = entry(
        None,
        or_null(number(0, exclusive=True)),
        "Learning rate.",
        Handling(per_host=False, fixed_in_a_run=False, reset_by_prove=True, with_tables=ANY),
    )
    optimizer: str | None = entry(
        None,
        or_null(choice(*OPTIMIZERS)),
        "Optimizer.",
        Handling(
            per_host=False, fixed_in_a_run=False, reset_by_prove=True, with_tables=(None, *ROW_OPTIMIZERS)
        ),
    )
    l1_regularization: float = entry(
        0.0,
        number(0),
        "L1 regularization, with the optimizer `ftrl`: a weight stays exactly 0 until its accumulated "
        "gradient exceeds this value.",
        Handling(per_host=False, fixed_in_a_run=False, reset_by_prove=True, with_tables=ANY),
    )
    table_rows: int = entry(
        200_000,
        integer(FEWEST_ROWS),
        "Rows in each table of the click models, about: 26 features share the rows as in Criteo's data. "
        "With more rows, fewer ids of files share a row; generated clicks have as many ids as rows.",
        Handling(per_host=False, fixed_in_a_run=True, reset_by_prove=False, with_tables=ANY),
    )
    hidden_units: int = entry(
        100,
        integer(1),
        "Units of the hidden layer.",
        Handling(per_host=False, fixed_in_a_run=True, reset_by_prove=False, with_tables=ANY),
    )
    activation: str = entry(
        "sigmoid",
        choice("sigmoid", "relu"),
        "Activation of the hidden layer.",
        Handling(per_host=False, fixed_in_a_run=True, reset_by_prove=False, with_tables=ANY),
    )
    steps_to_validate: int = entry(
        100,
        integer(1),
        "A worker's local steps between two lines that it prints.",
        Handling(per_host=False, fixed_in_a_run=False, reset_by_prove=False, with_tables=ANY),
    )
    divergence_steps: int = entry(
        2000,
        integer(0),
        "The run ends as diverged after so many local steps in a row in which a worker's loss is more than "
        "ten times its first loss; 0 for never.",
        Handling(per_host=False, fixed_in_a_run=False, reset_by_prove=False, with_tables=ANY),
    )
    checkpoint_interval_seconds: float = entry(
        60.0,
        number(0, exclusive=True),
        "The most seconds between two checkpoints of the chief. After a start or a recovery the intervals "
        "are 5 s, 10 s, 20 s and so on, up to this value.",
        Handling(per_host=False, fixed_in_a_run=False, reset_by_prove=False, with_tables=ANY),
    )
    checkpoint_interval_steps: int = entry(
        0,
        integer(0),
        "Global steps between two checkpoints of the chief, in addition to those by time; 0 for none.",
        Handling(per_host=False, fixed_in_a_run=False, reset_by_prove=True, with_tables=ANY),
    )
    checkpoints_to_keep: int = entry(
        3,
        integer(1),
        "How many of the newest checkpoints of a run are kept.",
        Handling(per_host=False, fixed_in_a_run=False, reset_by_prove=False, with_tables=ANY),
    )
    checkpoint_copies: int = entry(
        2,
        integer(1),
        "On how many hosts each checkpoint is kept: on the chief's, and on other hosts with tasks of the "
        "run. With 1, only on the chief's.",
        Handling(per_host=False, fixed_in_a_run=False, reset_by_prove=False, with_tables=ANY),
    )
    ps_recovery: str = entry(
        "all",
        choice("all", "partial"),
        "What goes back to the last checkpoint when a ps was lost, for models with tables and "
        "`trainer_replication` `async`. `all`: the whole model, with the global step. `partial`: only the "
        "part of the lost ps, if it is not ps 0; the other ps and the global step go on.",
        Handling(per_host=False, fixed_in_a_run=False, reset_by_prove=True, with_tables=ANY),
    )
    evaluate_every_steps: int = entry(
        0,
        integer(0),
        "Global steps between two evaluations during the run, each of a checkpoint that is saved for it; 0 "
        "for none. A process on the CPU of the chief's host evaluates on the test examples. If it takes "
        "longer than these steps, evaluations are rarer.",
        Handling(per_host=False, fixed_in_a_run=False, reset_by_prove=True, with_tables=ANY),
    )
    stop_when: str = entry(
        "",
        Rule(
            'a metric, one of <, <=, >, >=, and a number, such as "auc > 0.77", or empty for none',
            _to_condition,
        ),
        "Condition that ends the run as soon as an evaluation meets it, with `trainer_evaluate_every_steps` "
        "above 0. The run then ends as after its last step.",
        Handling(per_host=False, fixed_in_a_run=False, reset_by_prove=True, with_tables=ANY),
    )
    summary_steps: int = entry(
        100,
        integer(0),
        "A worker's local steps between two summaries for TensorBoard; 0 for none.",
        Handling(per_host=False, fixed_in_a_run=False, reset_by_prove=False, with_tables=ANY),
    )
    data_dir: str = entry(
        "",
        checked(
            "an absolute path on the hosts without $, or empty for the bundled digits",
            lambda value: "" if value is None else to_text(value),
            # Ansible would replace $HOME in the path of a module.
            lambda path: path.isprintable() and path[:1] in {"", "/"} and "$" not in path,
        ),
        "Directory on the hosts with MNIST's IDX files, packed by gzip or not.",
        Handling(per_host=True, fixed_in_a_run=False, reset_by_prove=True, with_tables=ANY),
    )
    shard_data: bool = entry(
        False,
        BOOLEAN,
        "Whether each worker reads a part of the examples in every epoch, without overlap, rather than all "
        "examples in an order of its own.",
        Handling(per_host=False, fixed_in_a_run=True, reset_by_prove=True, with_tables=ANY),
    )
    threads: int | None = entry(
        None,
        or_null(integer(1), "the cores of the host, shared by its tasks"),
        "TensorFlow's inter-op threads of a worker, and as many intra-op threads. By default all tasks of a "
        "host, also its ps, share the host's cores.",
        Handling(per_host=True, fixed_in_a_run=False, reset_by_prove=False, with_tables=ANY),
    )
    gpu_memory_fraction: float | None = entry(
        None,
        or_null(number(0, 1, exclusive=True), "memory taken as it is needed"),
        "Fraction of each GPU's memory that a task allocates at its start.",
        Handling(per_host=True, fixed_in_a_run=False, reset_by_prove=False, with_tables=ANY),
    )
    seed: int = entry(
        1,
        integer(0),
        "Seed of everything random. Worker k draws from seed + k.",
        Handling(per_host=False, fixed_in_a_run=False, reset_by_prove=False, with_tables=ANY),
    )
    barrier_deadline_seconds: float = entry(
        120.0,
        number(0),
        "Seconds that a task waits for all other tasks at the start, before it names the missing tasks and "
        "ends; 0 starts without waiting.",
        Handling(per_host=False, fixed_in_a_run=False, reset_by_prove=False, with_tables=ANY),
    )
    recovery_deadline_seconds: float = entry(
        900.0,
        number(0, exclusive=True),
        "Seconds that a task waits for a task that was lost during the run, as when its host reboots, before "
        "it ends; also how long train.yml waits for the host of the lead.",
        Handling(per_host=False, fixed_in_a_run=False, reset_by_prove=False, with_tables=ANY),
    )

    @classmethod
    def from_mapping(cls, values: Mapping[str, object]) -> "TrainingSettings":
        """Return the settings in `values`, {name: value}, with defaults for the missing settings.

        A text is converted: "7" is 7, and "null" is None where that is allowed. Raises SettingsError with
        every unknown name and every value that its rule refuses.
        """
        return cls(**converted(values, RULES, close_names("a setting that exists", RULES)))

    def gradients_in_a_step(self, workers: int) -> int:
        """Return the number of gradients whose mean one global step applies.

        It is 1 in asynchronous and local runs, `workers` in-graph, and with "sync" `replicas_to_aggregate`,
        or `workers` if that is None. `workers` is the number of workers that learn.
        """
        if self.replication == "sync":
            return self.replicas_to_aggregate or workers
        return workers if self.replication == "in_graph" else 1

    def examples_in_a_step(self, workers: int) -> int:
        """Return the examples in a global step: `batch_size` x `push_every` x the gradients in a step.

        `workers` is the number of workers that learn; all are assumed to have this task's batch size.
        """
        return self.batch_size * self.push_every * self.gradients_in_a_step(workers)

    def last_step(self, workers: int, examples: int) -> int:
        """Return the run's last global step: `steps`, or if `epochs` is above 0, the steps of so many epochs.

        A part of a step counts as a step. `workers` is the number of workers that learn, `examples` the
        number of training examples. All batches are assumed to have this task's size.
        """
        return math.ceil(self.epochs * examples / self.examples_in_a_step(workers)) or self.steps

    @property
    def steps_of_a_pull(self) -> int:
        """How many steps a worker takes after one pull: `pull_every` // `push_every`; 1 without `pull_every`.

        A step has one push.
        """
        return max((self.pull_every or 0) // self.push_every, 1)

    @property
    def most_steps_in_a_call(self) -> int:
        """The most steps in one call into TensorFlow: whole pulls, in all at most `steps_per_call` batches.

        It has at least one pull. Example: steps_per_call 10, push_every 2, pull_every 4 -> 4 steps (8
        batches).
        """
        pulls = self.steps_per_call // (self.push_every * self.steps_of_a_pull)
        return max(pulls, 1) * self.steps_of_a_pull

    def as_dict(self) -> dict[str, str | int | float | None]:
        """Return {name: value} of all settings, in the order of the fields."""
        return asdict(self)


RULES: Mapping[str, Rule] = {each.name: each.metadata["rule"] for each in fields(TrainingSettings)}
HANDLING: Mapping[str, Handling] = {each.name: each.metadata["handling"] for each in fields(TrainingSettings)}
PER_HOST = frozenset(name for name, handling in HANDLING.items() if handling.per_host)
FIXED_IN_A_RUN = tuple(name for name, handling in HANDLING.items() if handling.fixed_in_a_run)
RESET_BY_PROVE = tuple(name for name, handling in HANDLING.items() if handling.reset_by_prove)


def meaning(name: str) -> str:
    """Return the Markdown that explains the setting `name`. Raises KeyError for an unknown name."""
    return str(TrainingSettings.__dataclass_fields__[name].metadata["meaning"])


def summary(name: str) -> str:
    """Return the first sentence of `meaning(name)`, without its full stop. Raises KeyError."""
    return meaning(name).partition(". ")[0].removesuffix(".")


def default_text(name: str) -> str:
    """Return the default of a setting as people write it: "null", "false", "60", or "" for an empty text.

    Raises KeyError for an unknown name.
    """
    return value_text(TrainingSettings.__dataclass_fields__[name].default)


def value_text(value: object) -> str:
    """Return a value as people write it: None -> "null", True -> "true", 60.0 -> "60", 0.5 -> "0.5".

    A text stays as it is, without quotes.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
