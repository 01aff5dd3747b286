"""Contradictions between training settings, and between a setting and the number of workers."""

from collections.abc import Collection, Mapping
from typing import Any

from trainer.contract.model_card import OPTIMIZERS, Card
from trainer.contract.model_files import built_in_card
from trainer.contract.settings import DAMPED_OPTIMIZERS, HANDLING, REPLICATIONS, value_text
from trainer.contract.stop_condition import stop_problems


def replication_problems(
    settings: Mapping[str, Any], workers: int | None, prefix: str = "", card: Card | None = None
) -> dict[str, str]:
    """Return {name of a setting: error} for each setting that contradicts others or the number of workers.

    Args:
        settings: {name: value}; may lack settings.
        workers: the number of workers; None if unknown.
        prefix: what people write before the name of a setting, such as "trainer_" or "--"; only in errors.
        card: the card of the model; None takes the card of the built-in model that `settings` names, if any.

    Returns:
        One error for a setting, even if it contradicts several others. An error says the setting, its value
        and what is expected. {} if nothing contradicts. The keys have no prefix.

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
        what = f"{prefix}l1_regularization is {value_text(l1)} with {prefix}optimizer"
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
    """Return {name: error} for the settings whose values a model with tables does not support; {} if all fit.

    Missing settings fit. The model is taken to have tables. `prefix` is as for `replication_problems`.
    """
    has = f"{prefix}model {settings.get('model')!r} has tables, whose rows are looked up for each batch"
    return {
        name: f"{prefix}{name} is {settings[name]!r}, and {has}; expected {_one_of(handling.with_tables)}"
        for name, handling in HANDLING.items()
        if name in settings and handling.with_tables and settings[name] not in handling.with_tables
    }


def _one_of(values: Collection[object]) -> str:
    texts = [value_text(value) for value in values]
    return texts[0] if len(texts) == 1 else f"one of {', '.join(texts)}"


def recovery_problem(settings: Mapping[str, Any], prefix: str = "", *, has_tables: bool) -> str:
    """Return why the setting `ps_recovery: partial` cannot be used, in words.

    It needs the replication "async" (or none in `settings`) and a model with tables (`has_tables`). Return ""
    if it has both, or if `ps_recovery` has another value or is missing.
    """
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
    """Return errors of the settings `push_every` and `pull_every`, by these names; {} if there are none.

    A value that the other settings make impossible is an error, as is a `pull_every` that is no multiple of
    `push_every`.
    """
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
