"""The training settings: all that is to know of each stands here, and `make docs` writes the rest of it.

Setting `X` is the trainer's flag `--X` and the inventory variable `trainer_X`.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from trainer.contract.model_card import OPTIMIZERS, Card
from trainer.contract.model_files import MODEL_RULE, built_in_card
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
    setting,
    to_text,
)
from trainer.contract.stop_condition import StopCondition, stop_problems
from trainer.contract.table_models import FEWEST_ROWS, ROW_OPTIMIZERS

DAMPED_OPTIMIZERS = ("momentum", "adam")
GENERATED_WHERE_THE_GRAPH_IS = (
    "clicks are only generated in the process that has the graph, not with in_graph, nor with "
    "trainer_existing_servers"
)
MOST_STEPS_PER_CALL = 32
MOST_PUSH_EVERY, MOST_PULL_EVERY = 64, 256
REPLICATIONS = ("async", "sync", "in_graph", "local")

# Flags are split at blanks by systemd, which also expands $ and quotes.
_PLAIN_ABSOLUTE_PATH_OR_NONE = re.compile(r"(/[^\s\"'\\$`]*)?")


def _to_condition(value: object) -> str:
    """Return a condition as a flag holds it, such as "auc>0.77", and "" for none. Raises ValueError."""
    text = "" if value is None else to_text(value).strip()
    return StopCondition.from_text(text).as_setting if text else ""


@dataclass(frozen=True)
class TrainingSettings:
    """Everything a run can be told about training.

    Build it by `from_mapping` where the values come from people: the constructor checks nothing.
    """

    model: str = setting(
        "mnist_mlp",
        MODEL_RULE,
        "The model to train (docs/models.md): a built-in one, or the file of your own on the controller, "
        "which `deploy.yml` carries to the hosts.",
    )
    replication: str = setting(
        "async",
        choice(*REPLICATIONS),
        "How the workers train one model. `async`: a graph for each worker, gradients applied as they come. "
        "`sync`: a graph for each worker, gradients averaged before they are applied. `in_graph`: worker 0 "
        "alone has a graph, with a tower on every worker, and averages. `local`: worker 0 alone, without ps.",
    )
    replicas_to_aggregate: int | None = setting(
        None,
        or_null(integer(1), "as many as there are workers"),
        "Gradients that make a global step when `trainer_replication` is `sync`, at most one from each "
        "worker. The other workers are backups: a step does not wait for the slowest.",
    )
    existing_servers: bool = setting(
        False,
        BOOLEAN,
        "Whether servers run as units of their own (`psfleet-server@<index>`), and the workers connect to "
        "them as clients. Not with `local`.",
    )
    steps: int = setting(2000, integer(1), "Global steps of a run, over all workers together.")
    epochs: int = setting(
        0,
        integer(0),
        "Passes over the training examples. Above 0, it sets the number of steps in place of "
        "`trainer_steps`: ceil(epochs x training examples / examples of a global step). The examples of a "
        "global step are the chief's batch size times `trainer_push_every` times the gradients in a step.",
    )
    steps_per_call: int = setting(
        10,
        integer(1, MOST_STEPS_PER_CALL),
        "Steps that a worker takes at most in one call into TensorFlow; with `in_graph` it takes 1. It takes "
        "fewer where they would last more than 50 ms, where something is due before, and near the end. With "
        "`trainer_push_every` above 1, these are batches.",
    )
    pull_ahead: bool = setting(
        False,
        BOOLEAN,
        "Whether a worker pulls the parameters of its next step while a step computes, with several steps to "
        "a call and `trainer_replication` `async`. A step then computes on parameters that lack the update "
        "of the step before, and a call may last half a second rather than 50 ms.",
    )
    push_every: int = setting(
        1,
        integer(1, MOST_PUSH_EVERY),
        "Batches in a worker's training step. Above 1, a worker moves its copy of the parameters after each "
        "batch, and pushes the mean of the gradients once, as Downpour SGD does: the network carries that "
        "part of the bytes. A push is one global step, which counts as so many steps of the optimizer. Not "
        "with `local`.",
    )
    pull_every: int | None = setting(
        None,
        or_null(integer(1, MOST_PULL_EVERY), "the value of trainer_push_every"),
        "Batches for which a worker keeps the parameters that it pulled, if they are more than "
        "`trainer_push_every`: a multiple of it, with `trainer_replication` `async`. A worker pulls earlier "
        "at the beginning, where something is due before, and near the end.",
    )
    wire_dtype: str = setting(
        "float32",
        choice("float32", "bfloat16"),
        "Type of parameters and gradients on the network between workers and ps. `bfloat16` halves the bytes "
        "and rounds the values on the way; on the ps, in checkpoints and in the workers' computation all "
        "stays `float32`.",
    )
    staleness: str = setting(
        "plain",
        choice("plain", "damped"),
        "How gradients are applied that miss the newest steps of other workers, with `trainer_replication` "
        "`async`. `plain`: as any other. `damped`: most of a step is along the mean of many past gradients, "
        "so several workers need fewer examples. With the optimizers `momentum` and `adam`.",
    )
    batch_size: int = setting(100, integer(1), "Examples in a worker's batch.", per_host=True)
    learning_rate: float | None = setting(None, or_null(number(0, exclusive=True)), "Learning rate.")
    optimizer: str | None = setting(None, or_null(choice(*OPTIMIZERS)), "Optimizer.")
    l1_regularization: float = setting(
        0.0,
        number(0),
        "L1 regularization, with the optimizer `ftrl`: a number of the model is exactly 0 until the sum of "
        "its gradients, beside what steps have moved, is larger than this.",
    )
    table_rows: int = setting(
        200_000,
        integer(FEWEST_ROWS),
        "Rows in each table of clicks, about: 26 categories share them as in Criteo's data. "
        "More rows keep more ids of files apart; generated clicks have as many ids.",
    )
    hidden_units: int = setting(100, integer(1), "Units of the hidden layer.")
    activation: str = setting("sigmoid", choice("sigmoid", "relu"), "Activation of the hidden layer.")
    steps_to_validate: int = setting(
        100, integer(1), "A worker's local steps between two lines that it prints."
    )
    divergence_steps: int = setting(
        2000,
        integer(0),
        "A worker's local steps in a row whose loss is more than ten times its first, after which the run "
        "ends as diverged; 0 for never.",
    )
    checkpoint_interval_seconds: float = setting(
        60.0,
        number(0, exclusive=True),
        "Seconds between two checkpoints of the chief, at most. After a start or a recovery the intervals "
        "are 5 s, 10 s, 20 s and so on, up to this.",
    )
    checkpoint_interval_steps: int = setting(
        0,
        integer(0),
        "Global steps between two checkpoints of the chief, in addition to those by time; 0 for none.",
    )
    checkpoints_to_keep: int = setting(3, integer(1), "How many of the newest checkpoints of a run are kept.")
    checkpoint_copies: int = setting(
        2,
        integer(1),
        "On how many hosts each checkpoint is kept: the chief's and, as far as tasks of the run have other "
        "hosts, these. 1 keeps none elsewhere.",
    )
    ps_recovery: str = setting(
        "all",
        choice("all", "partial"),
        "What goes back to the last checkpoint when a ps was lost, for models with tables and "
        "`trainer_replication` `async`. `all`: the whole model, with the global step. `partial`: what lies "
        "on that ps alone, if it is not ps 0; the others keep theirs, and the global step goes on.",
    )
    evaluate_every_steps: int = setting(
        0,
        integer(0),
        "Global steps between two evaluations during the run, each of a checkpoint that is saved for it; 0 "
        "for none. A process beside the chief, on its host and CPU, evaluates on the test examples; where it "
        "takes longer, evaluations are rarer.",
    )
    stop_when: str = setting(
        "",
        Rule(
            'a metric, one of <, <=, >, >=, and a number, such as "auc > 0.77", or empty for none',
            _to_condition,
        ),
        "Condition that ends the run as soon as an evaluation meets it, with `trainer_evaluate_every_steps` "
        "above 0. The run then ends as at its last step.",
    )
    summary_steps: int = setting(
        100, integer(0), "A worker's local steps between two summaries for TensorBoard; 0 for none."
    )
    data_dir: str = setting(
        "",
        checked(
            "an absolute path on the hosts without blanks, quotes or $, or empty for the bundled digits",
            lambda value: "" if value is None else to_text(value),
            lambda path: path.isprintable() and _PLAIN_ABSOLUTE_PATH_OR_NONE.fullmatch(path),
        ),
        "Directory on the hosts with MNIST's IDX files, packed by gzip or not.",
        per_host=True,
    )
    shard_data: bool = setting(
        False,
        BOOLEAN,
        "Whether each worker reads its own part of every epoch, without overlap, rather than all examples in "
        "an order of its own.",
    )
    threads: int | None = setting(
        None,
        or_null(integer(1), "the cores of the host, shared by its tasks"),
        "Threads of a worker across operations, and as many within one. By default all tasks of a host, its "
        "ps included, share its cores.",
        per_host=True,
    )
    gpu_memory_fraction: float | None = setting(
        None,
        or_null(number(0, 1, exclusive=True), "memory taken as it is needed"),
        "Fraction of the memory of each of its GPUs that a task reserves at its start.",
        per_host=True,
    )
    seed: int = setting(1, integer(0), "Seed of everything random. Worker k draws from seed + k.")
    barrier_deadline_seconds: float = setting(
        120.0,
        number(0),
        "Seconds that a task waits for all the others before it gives up and names the missing; 0 starts "
        "without waiting.",
    )
    recovery_deadline_seconds: float = setting(
        900.0,
        number(0, exclusive=True),
        "Seconds that a task waits for another one that has taken part in the run and was lost, as when its "
        "host reboots, before it gives up; also how long train.yml waits for the host of the lead.",
    )

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

    def examples_in_a_step(self, workers: int) -> int:
        """Return the examples of a global step, where so many workers learn with batches of this size."""
        return self.batch_size * self.push_every * self.gradients_in_a_step(workers)

    def last_step(self, workers: int, examples: int) -> int:
        """Return the run's last global step: `steps`, or the global steps for `epochs` over the examples.

        An asynchronous step reads `push_every` batches; a synchronous or in-graph step reads as many for each
        worker whose gradients go into it. All batches are assumed to have this task's size.
        """
        return math.ceil(self.epochs * examples / self.examples_in_a_step(workers)) or self.steps

    @property
    def steps_of_a_pull(self) -> int:
        """The number of steps, each with a push, that a worker takes with the parameters of one pull."""
        return max((self.pull_every or 0) // self.push_every, 1)

    @property
    def most_steps_in_a_call(self) -> int:
        """The most steps of one call into TensorFlow: whole pulls, at least one."""
        pulls = self.steps_per_call // (self.push_every * self.steps_of_a_pull)
        return max(pulls, 1) * self.steps_of_a_pull

    def as_dict(self) -> dict[str, str | int | float | None]:
        """Return name -> value of every setting."""
        return asdict(self)


def flags_of(values: Mapping[str, object]) -> list[str]:
    """Return the trainer's flags of settings, such as "--model=linear"; what is None or empty is left out."""
    return [f"--{name}={_flag_text(value)}" for name, value in values.items() if value not in (None, "")]


RULES: Mapping[str, Rule] = {each.name: each.metadata["rule"] for each in fields(TrainingSettings)}
# A host may set these for itself, because its hardware or its disks differ; the others are the cluster's.
PER_HOST = frozenset(each.name for each in fields(TrainingSettings) if each.metadata["per_host"])


def meaning(name: str) -> str:
    """Return what a setting means, in Markdown."""
    return str(TrainingSettings.__dataclass_fields__[name].metadata["meaning"])


def summary(name: str) -> str:
    """Return the first sentence of what a setting means."""
    return meaning(name).partition(". ")[0].removesuffix(".")


def default_text(name: str) -> str:
    """Return the default of a setting as people write it: null, false, 60, or nothing for an empty text."""
    default = TrainingSettings.__dataclass_fields__[name].default
    return "null" if default is None else _flag_text(default)


def replication_problems(
    settings: Mapping[str, Any], workers: int | None, prefix: str = "", card: Card | None = None
) -> dict[str, str]:
    """Return setting -> what it cannot say beside the others, and with so many workers (None: not known).

    `settings` may lack some; `prefix` is what people write before the name of a setting. `card` is the card
    of the model, by default that of the built-in model that the settings name.
    """
    card = card or built_in_card(str(settings.get("model")))
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
    if settings.get("staleness") == "damped":
        what = f"{prefix}staleness is 'damped' with {prefix}"
        if replication in set(REPLICATIONS) - {"async"}:
            problems["staleness"] = (
                f"{what}replication {replication!r}; expected plain, or {prefix}replication async"
            )
        elif (optimizer := settings.get("optimizer")) in set(OPTIMIZERS) - set(DAMPED_OPTIMIZERS):
            expected = f"expected plain, or {prefix}optimizer {' or '.join(DAMPED_OPTIMIZERS)}"
            problems["staleness"] = f"{what}optimizer {optimizer!r}; {expected}"
    if (l1 := settings.get("l1_regularization")) and settings.get("optimizer") != "ftrl":
        what = f"{prefix}l1_regularization is {_flag_text(l1)} with {prefix}optimizer"
        problems["l1_regularization"] = (
            f"{what} {settings.get('optimizer')!r}; expected 0, or {prefix}optimizer ftrl"
        )
    problems |= _transfer_problems(settings, prefix)
    problems |= _recovery_problems(settings, prefix, card)
    if settings.get("existing_servers") and replication == "local":
        problems["existing_servers"] = (
            f"{prefix}existing_servers is true with {prefix}replication 'local', which has no servers; "
            "expected false, or another replication"
        )
    problems |= stop_problems(settings, prefix, card)
    if card and card.needs_tables:
        problems = table_problems(settings, prefix) | problems
    return problems


def table_problems(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return setting -> why it is not for a model with tables."""
    optimizer, replication = settings.get("optimizer"), settings.get("replication")
    push, pull = settings.get("push_every") or 1, settings.get("pull_every") or 1
    refused = {
        "optimizer": (
            optimizer not in {None, *ROW_OPTIMIZERS},
            f"one of {', '.join(sorted(ROW_OPTIMIZERS))}",
        ),
        "replication": (replication == "in_graph", "async, sync or local"),
        "push_every": (push > 1, "1"),
        "pull_every": (pull > push, "null"),
        "staleness": (settings.get("staleness") == "damped", "plain"),
    }
    has = f"{prefix}model {settings.get('model')!r} has tables, whose rows are looked up for each batch"
    return {
        name: f"{prefix}{name} is {settings[name]!r}, and {has}; expected {expected}"
        for name, (is_refused, expected) in refused.items()
        if is_refused
    }


def recovery_problem(settings: Mapping[str, Any], prefix: str = "", *, has_tables: bool) -> str:
    """Return why a lost ps cannot restore its part alone, as these settings ask for; "" for no reason."""
    if settings.get("ps_recovery") != "partial":
        return ""
    what, replication = f"{prefix}ps_recovery is 'partial' with {prefix}", settings.get("replication")
    if replication in set(REPLICATIONS) - {"async"}:
        why = "which has no ps" if replication == "local" else "in which all ps are at one step"
        return f"{what}replication {replication!r}, {why}; expected all, or {prefix}replication async"
    if not has_tables:
        return f"{what}model {settings.get('model')!r}, which has no tables; expected all"
    return ""


def _recovery_problems(settings: Mapping[str, Any], prefix: str, card: Card | None) -> dict[str, str]:
    # Where the card is not known, the tasks know whether there are tables.
    what = recovery_problem(settings, prefix, has_tables=card is None or bool(card.tables))
    return {"ps_recovery": what} if what else {}


def _transfer_problems(settings: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """Return setting -> why a worker cannot push or pull as rarely as these settings ask for."""
    replication, push, pull = (settings.get(name) for name in ("replication", "push_every", "pull_every"))
    problems = {}
    if push and push > 1 and replication == "local":
        problems["push_every"] = (
            f"{prefix}push_every is {push} with {prefix}replication 'local', which pushes to no server; "
            "expected 1, or another replication"
        )
    if not push or not pull or pull == push:
        return problems
    what = f"{prefix}pull_every is {pull} with {prefix}push_every {push}"
    if pull % push:
        problems["pull_every"] = f"{what}; expected null, or a multiple of {push}"
    elif replication in set(REPLICATIONS) - {"async"}:
        problems["pull_every"] = (
            f"{what} and {prefix}replication {replication!r}, which pulls for each step; "
            f"expected null, or {prefix}replication async"
        )
    elif settings.get("pull_ahead"):
        problems["pull_every"] = (
            f"{what} and {prefix}pull_ahead true, which pulls for each step; expected null, or "
            f"{prefix}pull_ahead false"
        )
    return problems


def _flag_text(value: object) -> str:
    """Return 60 rather than 60.0, and true rather than True: people compare it with what they wrote."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
