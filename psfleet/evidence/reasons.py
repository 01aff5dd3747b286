"""Combines the reasons why tasks of a run failed: each reason appears once, with the names of its tasks."""

from collections.abc import Iterable

from psfleet.evidence.recorded_run import Run
from psfleet.evidence.task_records import TaskRecords
from trainer.host.error_lines import in_short
from trainer.host.wording import first_of, grouped


def join_failures(failures: Iterable[tuple[str, str]]) -> list[str]:
    """Return texts such as "worker0, worker1 failed: why" from (task, text) pairs; [] for none.

    Tasks with equal texts are joined, in the order in which each text appears first.
    """
    by_words = grouped((words, name) for name, words in failures)
    return [f"{first_of(names)} {words}" for words, names in by_words.items()]


def in_a_line(reason: str) -> str:
    """Return the first line of a reason, which is the error, and its last line, joined by " ... ".

    A reason of one line is returned as it is; "" for an empty one.
    """
    lines = in_short(reason).splitlines()
    return " ... ".join(dict.fromkeys((lines[0], lines[-1]))) if lines else ""


def recorded_failure(task: TaskRecords) -> str:
    """Return "(class): reason" of the `failed` record with which the task ended; "" if it ended otherwise."""
    if task.ending is None or task.ending.event != "failed":
        return ""
    return f"({task.ending.text('class')}): {task.ending.text('reason')}"


def reasons_without_a_step(run: Run) -> tuple[str, ...]:
    """Return why tasks failed, one text of a few lines per failure, if no task took a step; else ().

    Return () also if `run.problem` is set. Tasks with equal failures share a text. The cause that stopped all
    tasks matters more than what each check says about a run without steps. A program may take steps that
    psfleet does not observe, so a worker that ended well by itself counts as one that took steps.
    """
    done = any(run.endings[each.name].by_itself for each in run.workers if each.name in run.endings)
    if run.problem or done or run.windows or any(run.contributions.values()):
        return ()
    names = [task.name for task in run.expected]
    failures = []
    for name in names:
        failure, ending = recorded_failure(run.task(name)), run.endings.get(name)
        if ending is not None and ending.failed:
            why = ending.reason or failure.partition(": ")[2]
            failures.append((name, f"exit code {ending.exit_code}", in_short(why)))
        elif failure:
            how, _, why = failure.partition(": ")
            failures.append((name, how, in_short(why)))
    # The ps end with a worker's reason, with the worker's name before it.
    whys = {why for _, _, why in failures}
    own = [(name, how, why) for name, how, why in failures if not _is_of_another(why, names, whys)]
    return tuple(
        join_failures((name, f"failed, {how}: {why}".rstrip(": ")) for name, how, why in own or failures)
    )


def _is_of_another(why: str, names: Iterable[str], whys: Iterable[str]) -> bool:
    return any(why.replace(f"{name}: ", "", 1) in whys for name in names if f"{name}: " in why)
