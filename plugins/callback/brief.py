"""Shows what a playbook changes and reports, and leaves out tasks that find everything in order."""

DOCUMENTATION = """
name: brief
type: stdout
short_description: changes, messages and failures, one line for each task
description:
  - A line for each task that changed something, with the hosts; the messages of C(debug); each failure once.
  - The recap counts no failure for a host that shares it with all others or that only waited for others.
  - A task that takes longer than a few seconds is named while it lasts.
  - From C(-v) on it is P(ansible.builtin.default#callback), with all tasks.
  - What these returned is shown from C(-vv) on.
extends_documentation_fragment:
  - default_callback
  - result_format_callback
"""

from collections import Counter
from collections.abc import Mapping
from threading import Timer
from typing import Any

from ansible import constants, context
from ansible.executor.stats import AggregateStats
from ansible.executor.task_result import CallbackTaskResult
from ansible.playbook import Playbook
from ansible.playbook.play import Play
from ansible.playbook.task import Task
from ansible.plugins.callback.default import CallbackModule as Default
from ansible.utils.display import Display

# Ansible forks a process for each task and host. So modules that filters and actions need are imported here,
# once.
from psfleet.run import start, task_files  # noqa: F401
from psfleet.watch import failed_run  # noqa: F401
from psfleet.watch.terminal import Coloured, escaped_texts, escaping_display
from trainer.host.wording import first_of, readable

from ..plugin_utils import actions  # noqa: F401

COLLECTION = "psfleet.cluster."
SAYING = {"debug", "ansible.builtin.debug"}
# The output of a command or module that failed, which may explain more than the message.
OUTPUT = ("cmd", "rc", "stdout", "stderr", "module_stdout", "module_stderr")
# A task that takes longer is named while it runs, unless it shows something meanwhile: the action
# `watch_run`, and these pages of the action `show`.
LONG_SECONDS = 5.0
PAGES_MEANWHILE = {"log", "tensorboard", "verdict"}
WATCHING = f"{COLLECTION}watch_run"
# The action that queries all hosts for some of its pages.
SHOWING = f"{COLLECTION}show"
# The action that can succeed for a host that does not answer, and report it.
REACHING = f"{COLLECTION}host_facts"

REFUSED = (
    "the playbooks rely on what their first tasks check and compute. Leave the option out: a task with "
    "nothing to change takes almost no time."
)
# Ansible's recap would count a failure of all hosts together for the first host.
WHOLE = "(whole cluster)"


class TrueStats(AggregateStats):
    """The counts of a playbook by host, corrected.

    - `once`: {host: its failures of Ansible tasks with run_once}; they count for "(whole cluster)" instead.
    - `asked`: {host: how often the action `show` asked it}; each time counts as ok.
    - `unreached`: hosts that did not answer although their Ansible task succeeded; they count as unreachable.
    """

    def __init__(
        self, stats: AggregateStats, once: Counter[str], asked: Counter[str], unreached: set[str]
    ) -> None:
        super().__init__()
        self.__dict__.update(vars(stats))
        self.ok = Counter(stats.ok) + asked
        self.failures = {**Counter(stats.failures) - once, WHOLE: once.total()}
        self.dark = Counter(stats.dark) + Counter(unreached)
        self.processed = stats.processed | dict.fromkeys(asked, 1) | ({WHOLE: 1} if once else {})


class TrueRecap(Default):
    """Ansible's default callback, but texts of hosts are escaped, and the recap is corrected (`TrueStats`).

    So the recap blames no host for a failure of another host, or of all hosts together.
    """

    def __init__(self) -> None:
        super().__init__()
        self._display = escaping_display()
        self._once: Counter[str] = Counter()
        self._asked: Counter[str] = Counter()
        self._unreached: set[str] = set()

    def v2_playbook_on_start(self, playbook: Playbook) -> None:
        """Exit with 2 if --start-at-task is given, because it would skip the tasks that check everything."""
        if task := context.CLIARGS.get("start_at_task"):
            self._display.error(f"--start-at-task is {task!r}; {REFUSED}", wrap_text=False)
            raise SystemExit(2)
        super().v2_playbook_on_start(playbook)

    def _get_diff(self, difflist: Any) -> Coloured:  # noqa: ANN401 - as the base class has it
        """Return the coloured text of a diff; the hosts' own texts in it are escaped."""
        return Coloured(super()._get_diff(escaped_texts(difflist)))

    def v2_runner_on_ok(self, result: CallbackTaskResult) -> None:
        """Print the result as Ansible does; note a host that does not answer although its task succeeded.

        The recap counts such a host as unreachable.
        """
        self._note_unreached(result)
        super().v2_runner_on_ok(result)

    def v2_runner_on_failed(self, result: CallbackTaskResult, ignore_errors: bool = False) -> None:
        """Print the failure as Ansible does; note it for the recap if it is of all hosts together (run_once).

        Ignored errors are not noted. Hosts that do not answer are noted, too.
        """
        self._note_unreached(result)
        self._note_once(result, ignore_errors)
        super().v2_runner_on_failed(result, ignore_errors)

    def _note_unreached(self, result: CallbackTaskResult) -> None:
        if result.task.action == REACHING and result.result.get("reached") is False:
            self._unreached.add(result.host.get_name())
        if result.task.action == SHOWING:
            problems = result.result.get("problems", {})
            self._asked.update(problems.keys())
            self._unreached.update(host for host, problem in problems.items() if problem)

    def _note_once(self, result: CallbackTaskResult, ignore_errors: bool) -> None:
        if result.task.run_once and not ignore_errors:
            self._once[result.host.get_name()] += 1

    def v2_playbook_on_stats(self, stats: AggregateStats) -> None:
        """Print the recap."""
        super().v2_playbook_on_stats(TrueStats(stats, self._once, self._asked, self._unreached))


class CallbackModule(TrueRecap):
    """The brief output: the recap of TrueRecap, and a line for each task that changes, reports or fails."""

    CALLBACK_NAME = f"{COLLECTION}brief"

    def __init__(self) -> None:
        super().__init__()
        self._task_title = ""
        # {title of a task: hosts on which it changed something}
        self._changed: dict[str, list[str]] = {}
        self._timer = Timer(LONG_SECONDS, self._name_long_task)

    def get_option(self, option: str) -> Any:  # noqa: ANN401 - as the base class has it
        """Return the value of an option; False for `display_ok_hosts` and `display_skipped_hosts`."""
        return option not in {"display_ok_hosts", "display_skipped_hosts"} and super().get_option(option)

    def v2_playbook_on_play_start(self, play: Play) -> None:
        """Print nothing: names of plays are for readers of the playbook."""
        self._end_task()
        self._play = play

    def _say_nothing(self, *_: object) -> None:
        """Print nothing: only long tasks and failures are named."""

    v2_playbook_on_include = v2_playbook_on_no_hosts_remaining = v2_runner_retry = _say_nothing

    def _task_start(self, task: Task, prefix: str | None = None) -> None:
        self._end_task()
        super()._task_start(task, prefix)
        self._task_title = task.get_name().strip().removeprefix(COLLECTION)
        if not (task.action == WATCHING or (task.action == SHOWING and task.args["page"] in PAGES_MEANWHILE)):
            self._timer = Timer(LONG_SECONDS, self._name_long_task)
            self._timer.daemon = True
            self._timer.start()

    def _name_long_task(self) -> None:
        self._display.display(f"...      {self._task_title}", color=constants.COLOR_VERBOSE)

    def v2_runner_on_ok(self, result: CallbackTaskResult) -> None:
        """Note a host that changed something, for a line at the task's end; print messages of `debug` now."""
        self._note_unreached(result)
        self._handle_warnings_and_exception(result)
        if result.result.get("changed"):
            title = f"{self._task_title}{_freed(result.result)}"
            self._changed.setdefault(title, []).append(result.host.get_name())
        elif not result.task.loop:
            self.v2_runner_item_on_ok(result)

    def v2_runner_item_on_ok(self, result: CallbackTaskResult) -> None:
        """Print the message if the Ansible task is a `debug`; else nothing."""
        if result.task.action in SAYING:
            msg = result.result.get("msg", "")
            self._display.display("\n".join(map(str, msg)) if isinstance(msg, list) else str(msg))

    def v2_runner_on_failed(self, result: CallbackTaskResult, ignore_errors: bool = False) -> None:
        """Print the failed task, its host, the message and the output.

        For a loop print nothing, because its failed items were printed. If the Ansible task ignores errors,
        print what Ansible's default callback prints.
        """
        if ignore_errors:
            super().v2_runner_on_failed(result, ignore_errors)
            return
        self._note_unreached(result)
        self._note_once(result, ignore_errors)
        if "results" not in result.result:  # the failures of a loop's items were printed
            self._say_failure(result)

    def v2_runner_item_on_failed(self, result: CallbackTaskResult) -> None:
        """Print the failed item of a loop, with its host, message and output.

        If the Ansible task ignores errors, print what Ansible's default callback prints.
        """
        if result.task.ignore_errors:
            super().v2_runner_item_on_failed(result)
        else:
            self._say_failure(result, f" ({self._get_item_label(result.result)})")

    def v2_runner_on_unreachable(self, result: CallbackTaskResult) -> None:
        """Print, in one text, the task, the host and why it cannot be reached."""
        self._say_failure(result)

    def _say_failure(self, result: CallbackTaskResult, item: str = "") -> None:
        self._timer.cancel()
        self._handle_warnings(result.result)
        values = result.result
        # A failure of all hosts together is not a failure of the first host.
        host = "" if result.task.run_once else f": {result.host.get_name()}"
        title = f"FAILED   {self._task_title}{host}{item}"
        lines = [f"{name}: {str(values[name]).strip()}" for name in OUTPUT if values.get(name)]
        text = "\n".join(["", title, str(values.get("msg", "")).strip(), *lines, ""])
        on_stderr = bool(self.get_option("display_failed_stderr"))
        self._display.display(text, color=constants.COLOR_ERROR, stderr=on_stderr)

    def v2_playbook_on_stats(self, stats: AggregateStats) -> None:
        """Print the recap."""
        self._end_task()
        super().v2_playbook_on_stats(stats)

    def _end_task(self) -> None:
        self._timer.cancel()
        for title, hosts in self._changed.items():
            text = f"changed  {title}: {first_of(sorted(hosts))}"
            self._display.display(text, color=constants.COLOR_CHANGED)
        self._changed = {}


def _freed(values: Mapping[str, Any]) -> str:
    """Return the disk space that a task freed, such as " (1.5 GB)"; "" if `freed_bytes` is missing."""
    freed = values.get("freed_bytes")
    return f" ({readable(freed)})" if isinstance(freed, int) else ""


if Display().verbosity:  # from the command line, which is read by now

    class CallbackModule(TrueRecap):  # type: ignore[no-redef]
        """Ansible's own callback, but it shows results of tasks, such as whole plans, only with C(-vv)."""

        def _run_is_verbose(self, result: CallbackTaskResult, verbosity: int = 0) -> bool:
            return bool(super()._run_is_verbose(result, verbosity + 1))
