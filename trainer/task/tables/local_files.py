"""The files of table rows on a task's own disk: what the task does with them when the chief asks.

A thread waits for a question in a queue of the task's server, does what the question says in this process,
and puts the answer into another queue (chief.py has the chief's side). So rows go from the variables of
a ps into the ps's own files, and no other process ever holds all rows. A worker whose model has no tables has
no such thread. A task that only serves does not know the model, so it always has the thread.
"""

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread, Timer
from typing import Any

import tensorflow as tf

from trainer.coordination.bounded_calls import open_session, run_once_more
from trainer.coordination.running_task import RunningTask
from trainer.engine.mutex import rows_mutex
from trainer.engine.tables.changed_rows import MarkedPart, SharedVariable
from trainer.host.error_lines import error_in_short
from trainer.model.checkpoints import CHECKPOINTS, COPIES, UNFINISHED, bring_to_disk, link
from trainer.model.tables.checkpoint_files import RowLayout, file_problem, tables_in
from trainer.task.tables.writer import CutWriting, PartOfCut

v1 = tf.compat.v1

# A chief that asks nothing for this long counts as gone; then pushes go on.
_SECONDS_TO_HOLD = 30.0
_ROW_FILE = re.compile(r"model\.ckpt-([0-9]{1,18})\.[A-Za-z0-9_.-]+\.rows")
_SUFFIX = re.compile(r"[A-Za-z0-9_.]+\.[0-9]+-of-[0-9]+\.[0-9]{5,}\.rows")

# The questions that the chief asks only of tasks that hold tables.
_FOR_SAVES = ("forget", "follow", "hold", "cut", "release", "finish")

# The fields of a question or an answer, a JSON object.
Fields = Mapping[str, Any]
Answer = dict[str, Any]


class QuestionQueues:
    """The operations that put a question into a task's queue, and an answer into its other queue.

    `ask` and `take_answer` are for the chief, `take_question` and `answer` for the task; `text` is what `ask`
    and `answer` put.
    """

    def __init__(self, device: str) -> None:
        """Add the operations to the default graph, for the task whose device is `device`."""
        with tf.device(f"{device}/device:CPU:0"):
            questions, answers = _queue("asked", tf.string), _queue("answered", tf.string)
            self.text = v1.placeholder(tf.string, [])
            self.ask, self.take_question = questions.enqueue(self.text), questions.dequeue()
            self.answer, self.take_answer = answers.enqueue(self.text), answers.dequeue()


class _Hold:
    """Blocks all pushes to this task's variables, from `begin` to `end`."""

    def __init__(self, session: tf.compat.v1.Session) -> None:
        """Add the operations to the default graph, on the default device."""
        holds, lets_go = _queue("holds", tf.bool), _queue("lets_go", tf.bool)
        lock = tf.raw_ops.MutexLock(mutex=rows_mutex())
        with tf.control_dependencies([lock]):
            signal = holds.enqueue(True)
        with tf.control_dependencies([signal]):
            ended = lets_go.dequeue()
        with tf.control_dependencies([ended]):
            self._hold = tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
        self._wait_for_hold, self._let_go = holds.dequeue(), lets_go.enqueue(True)
        self._session, self._lock = session, Lock()
        self._thread: Thread | None = None

    @property
    def lasts(self) -> bool:
        """Whether pushes are blocked now."""
        return self._thread is not None

    def begin(self) -> None:
        """Block pushes; return once no push is going on. An earlier hold ends first."""
        self.end()
        with self._lock:
            self._thread = Thread(target=lambda: self._session.run(self._hold), daemon=True)
            self._thread.start()
            self._session.run(self._wait_for_hold)

    def end(self) -> bool:
        """Let pushes go on; return True if they were blocked until now, False if they were not."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._session.run(self._let_go)
                thread.join()
            return thread is not None


class TableFiles:
    """Does what the chief asks of a task, in a thread that lasts as long as the task's server.

    A question is a JSON object; its "do" names a method below without the prefix `_do_`. An answer is a JSON
    object with the question's "id" and what the method returned, or "error", in words, if that failed.
    """

    def __init__(self, target: str, device: str, run_directory: Path | None) -> None:
        """Connect to the task's own server at `target`; the operations go to the task's `device`.

        The folders of checkpoints are in `run_directory`; without one (None), questions about files give an
        error.
        """
        self._run_directory = run_directory
        self._device = f"{device}/device:CPU:0"
        self._graph = tf.Graph()
        self._session = open_session(target, self._graph, [])
        with self._graph.as_default(), tf.device(self._device):
            self._queues, self._hold = QuestionQueues(device), _Hold(self._session)
        # The chief's description of a part (JSON) -> the part.
        self._marked: dict[str, MarkedPart] = {}
        self._cut: CutWriting | None = None
        # The name of the checkpoint since which all changed rows are marked; "" if there is none.
        self._since = ""
        self._timer = Timer(0, lambda: None)

    def start(self) -> None:
        """Start the thread that answers the chief's questions; return at once."""
        Thread(target=self._serve, daemon=True, name="table files").start()

    def _serve(self) -> None:
        methods: dict[str, Callable[[Fields], Answer]] = {
            name: getattr(self, f"_do_{name}") for name in (*_FOR_SAVES, "share", "check", "folder", "keep")
        }
        with suppress(tf.errors.OpError):  # the server has ended
            while True:
                text = run_once_more(lambda: self._session.run(self._queues.take_question))
                self._timer.cancel()
                answer: Answer = {}
                try:
                    question = json.loads(text)
                    answer["id"] = question["id"]
                    if question["do"] not in {"cut", "release"}:
                        self._hold.end()  # the hold of a chief that is gone
                    answer |= methods[question["do"]](question)
                except Exception as error:
                    answer["error"] = error_in_short(error)
                if self._hold.lasts:
                    self._timer = Timer(_SECONDS_TO_HOLD, self._hold.end)
                    self._timer.start()
                self._session.run(self._queues.answer, {self._queues.text: json.dumps(answer)})

    def _do_forget(self, question: Fields) -> Answer:
        """Stop a save that is going on, and mark every row as not changed; answer {}.

        Call it when the values of the variables belong to no checkpoint.
        """
        self._stop_writing()
        self._since = ""
        for part in self._parts(question):
            part.forget(self._session)
        return {}

    def _do_follow(self, question: Fields) -> Answer:
        """Remember that all rows that changed after the checkpoint named `since` are marked; answer {}."""
        self._since = str(question["since"])
        return {}

    def _do_hold(self, question: Fields) -> Answer:
        """Block pushes until `release`, or until the chief asks nothing for 30 s.

        Answer {"follows": True} if the marks show all rows that changed after the checkpoint named `since`;
        False if they do not, or if `since` is "".
        """
        self._stop_writing()
        self._parts(question)  # so that the parts are ready before pushes are blocked
        self._hold.begin()
        return {"follows": bool(self._since) and self._since == question["since"]}

    def _do_cut(self, question: Fields) -> Answer:
        """Begin to write the rows as they are now, into unfinished files; answer {} at once.

        With the `delta` 0 these are all rows, else the rows that changed since the last save.
        """
        self._folder(CHECKPOINTS).mkdir(parents=True, exist_ok=True)
        parts = []
        for table, marked in zip(question["tables"], self._parts(question), strict=True):
            layouts = {variable["name"]: _layout(variable) for variable in table["variables"]}
            parts.append(PartOfCut(marked, layouts, table["part"], question["delta"]))
        self._since = ""
        self._cut = CutWriting(self._session, parts, self._path(question, UNFINISHED))
        self._cut.begin(changed=question["delta"] > 0)
        return {}

    def _do_release(self, _asked: Fields) -> Answer:
        """Let pushes go on; answer {"held": whether they were blocked until now}."""
        return {"held": self._hold.end()}

    def _do_finish(self, question: Fields) -> Answer:
        """Wait until the rows of the cut are on disk and read back as written, and rename the files to count.

        With a delta, the checkpoint also gets links to the files of the `former` checkpoint. The answer has:

        - "sums": {variable: its sum, or with a delta the change of its sum}, as decimal texts;
        - "sha256": {suffix of each new file: its SHA-256};
        - "rows": {table: number of rows written};
        - "not_finite": the variables with a number that is not finite. If there are any, the answer has only
          this, and no file counts.

        Raises ValueError if there is no cut, or if a file does not read back as written.
        """
        cut, self._cut = self._cut, None
        if cut is None:
            raise ValueError("there is no cut to finish")
        cut.wait()
        if not_finite := [name for part in cut.parts for name in part.not_finite]:
            return {"not_finite": not_finite}
        hashes, sums = dict[str, str](), dict[str, int]()
        for part in cut.parts:
            hashes |= part.finish(cut.path)
            sums |= part.sums
        if question["former"]:
            sums = self._changes(question, cut)
        for suffix in hashes:
            self._row_file(question, suffix, UNFINISHED).rename(self._row_file(question, suffix))
        bring_to_disk(self._folder(CHECKPOINTS))
        return {
            "sums": {name: str(total) for name, total in sums.items()},
            "sha256": hashes,
            "rows": {part.table: part.count for part in cut.parts},
            "not_finite": [],
        }

    def _do_share(self, question: Fields) -> Answer:
        """Hard-link the files of step `former_step` with these `suffixes` as files of `step`; answer {}."""
        former = {**question, "step": question["former_step"]}
        for suffix in question["suffixes"]:
            link(self._row_file(former, suffix), self._row_file(question, suffix))
        bring_to_disk(self._folder(question.get("folder", CHECKPOINTS)))
        return {}

    def _changes(self, question: Fields, cut: CutWriting) -> dict[str, int]:
        """Link the files of the former checkpoint into the new one; return {variable: change of its sum}."""
        former_tables = tables_in(question["former"], question["former_step"])
        tables = {table.layout.table: table for table in former_tables}
        files = [
            file.suffix for table in tables.values() for file in table.files if file.part == question["part"]
        ]
        self._do_share({**question, "suffixes": files})
        former = self._path({"step": question["former_step"]})
        return {
            name: part.change_of_sum(former, tables, cut.path, name)
            for part in cut.parts
            for name in part.sums
        }

    def _stop_writing(self) -> None:
        """Stop a save that a chief began but did not finish, if there is one."""
        cut, self._cut = self._cut, None
        if cut is not None:
            cut.stop()

    def _do_check(self, question: Fields) -> Answer:
        """Answer {"problems": {suffix: what is wrong, in words}} of the bad or missing `files`.

        The inner mapping is {} if all are good. A good unfinished file, which was copied to this task, takes
        the place of a bad or missing file first.
        """
        problems = {}
        for suffix, size, sha256 in question["files"]:
            finished, unfinished = (
                self._row_file(question, suffix),
                self._row_file(question, suffix, UNFINISHED),
            )
            problem = file_problem(finished, size, sha256)
            if problem and unfinished.exists():
                bring_to_disk(unfinished)
                if not (problem := file_problem(unfinished, size, sha256)):
                    unfinished.rename(finished)
                    bring_to_disk(finished.parent)
            if problem:
                problems[suffix] = problem
        return {"problems": problems}

    def _do_folder(self, question: Fields) -> Answer:
        """Create the run directory's folder `folder` if it is missing; answer {"path": its absolute path}."""
        folder = self._folder(question["folder"])
        folder.mkdir(parents=True, exist_ok=True)
        return {"path": str(folder)}

    def _do_keep(self, question: Fields) -> Answer:
        """Remove from a folder the table files, finished or not, of all steps but `steps`; answer {}."""
        for path in self._folder(question["folder"]).glob("model.ckpt-*.rows"):
            match = _ROW_FILE.fullmatch(path.name)
            if match and int(match[1]) not in question["steps"]:
                path.unlink(missing_ok=True)
        return {}

    def _folder(self, name: str) -> Path:
        if self._run_directory is None or name not in {CHECKPOINTS, COPIES}:
            raise ValueError("it has no --run_directory, where its rows of tables would be saved")
        return self._run_directory.absolute() / name

    def _path(self, question: Fields, mark: str = "") -> Path:
        """Return the path of the files of a checkpoint (`step` in the question) without their suffixes.

        `mark` is UNFINISHED for files that do not count yet, else "".
        """
        return self._folder(question.get("folder", CHECKPOINTS)) / f"model.ckpt-{int(question['step'])}{mark}"

    def _row_file(self, question: Fields, suffix: str, mark: str = "") -> Path:
        if not _SUFFIX.fullmatch(suffix):
            raise ValueError(f"{suffix!r} is not the name of a file with rows")
        return Path(f"{self._path(question, mark)}.{suffix}")

    def _parts(self, question: Fields) -> list[MarkedPart]:
        """Return the parts of tables that the question describes, in its order; this task holds them."""
        parts = []
        for table in question["tables"]:
            if (description := json.dumps(table)) not in self._marked:
                variables = [
                    SharedVariable(each["name"], each["dtype"], (table["rows"], *each["shape"][1:]))
                    for each in table["variables"]
                ]
                with self._graph.as_default(), tf.device(self._device):
                    self._marked[description] = MarkedPart(table["name"], variables)
            parts.append(self._marked[description])
        return parts


def _layout(variable: Fields) -> RowLayout:
    return RowLayout(variable["table"], variable["dtype"], tuple(variable["shape"]), variable["parts"])


def serve_table_files(task: RunningTask) -> None:
    """Start the thread of TableFiles; do nothing if another process is this task's server."""
    if task.server is not None:
        TableFiles(task.target, task.cluster.device, task.options.run_directory).start()


def _queue(name: str, dtype: tf.DType) -> tf.queue.QueueBase:
    return v1.FIFOQueue(-1, dtype, [[]], shared_name=f"psfleet/table_files/{name}")
