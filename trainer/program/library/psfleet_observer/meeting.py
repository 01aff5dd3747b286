"""The observer's own session to the ps, through which it exchanges nonces and reads the global step.

The nonces are in variables on the ps, in psfleet's own resource container, so that the program's variables
and checkpoints do not change. The session has a graph of its own.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from psfleet_observer.guard import within

if TYPE_CHECKING:
    import tensorflow as tf

_CONTAINER = "psfleet"
_MOST_VARIABLES = 1000
# A ps publishes its nonce after its server has started, so others may reach the server a little before that.
_SECONDS_FOR_THE_PS, _POLL_SECONDS = 2.0, 0.02
_SECONDS_TO_MEET, _SECONDS_TO_READ = 60.0, 10.0


class Meeting:
    """The observer's session to the tasks with a program's step counters.

    Its methods raise tf.errors.OpError and TimeoutError.
    """

    def __init__(
        self,
        session: tf.compat.v1.Session,
        counters: Sequence[tf.Variable],
        task: str,
        nonce: int,
        workers: Iterable[str],
    ) -> None:
        """Connect to all tasks that the program's `session` can reach, and publish this process's `nonce`.

        This waits up to 2 s until all ps have published their nonces, and up to 60 s in all. `counters` are
        the program's step counters, `task` is this process's task, `workers` are the names of all workers.
        """
        import tensorflow as tf

        self._graph = tf.Graph()
        with self._graph.as_default():
            self._counters = [_read_alike(counter) for counter in counters]
        config = tf.compat.v1.ConfigProto(device_filters=session._config.device_filters)
        home = _device(place_of(counters[0].device, ""))
        with self._graph.as_default():
            self._workers = {name: _Nonce(name, home) for name in workers}
            # A ps may train, too, and so may a task that is not in the plan.
            own = self._workers.get(task) or _Nonce(task, home)
        began = time.monotonic()
        self._session, self._ps_nonces = within(
            _SECONDS_TO_MEET, lambda: self._meet(session.sess_str, config, own, nonce)
        )
        self._seconds = round(time.monotonic() - began, 6)

    def _meet(
        self, target: str, config: tf.compat.v1.ConfigProto, own: _Nonce, nonce: int
    ) -> tuple[tf.compat.v1.Session, dict[str, int]]:
        """Publish `nonce` by `own`; return (a new session, {ps: nonce} of the ps that published theirs)."""
        import tensorflow as tf

        session = tf.compat.v1.Session(target, graph=self._graph, config=config)
        places = sorted({place_of(device.name, "") for device in session.list_devices()})
        with self._graph.as_default():
            servers = {name: _Nonce(name, _device(name)) for name in places if name.startswith("ps")}
        session.run(own.assign(nonce))
        until = time.monotonic() + _SECONDS_FOR_THE_PS
        while len(nonces := _read(session, servers)) < len(servers) and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
        return session, nonces

    def read(self) -> tuple[int, dict[str, object]]:
        """Return (global step, the fields of a `peers_ready` record about nonces).

        The nonces are those that the ps had published when this session met them, and those that the workers
        have published by now.
        """
        workers = within(_SECONDS_TO_READ, lambda: _read(self._session, self._workers))
        servers = {"ps_nonces": self._ps_nonces, "ps_own_nonces": self._ps_nonces}
        return self.global_step(), {**servers, "worker_nonces": workers, "waited_seconds": self._seconds}

    def global_step(self) -> int:
        """Return the current global step; if the program has several counters, their sum."""
        return within(_SECONDS_TO_READ, lambda: sum(map(int, self._session.run(self._counters))))

    def close(self) -> None:
        """Close the session, or give up after 10 s; nothing is raised."""
        import tensorflow as tf

        with suppress(TimeoutError, tf.errors.OpError):
            within(_SECONDS_TO_READ, self._session.close)


def publish_nonce(server: tf.distribute.Server, name: str, nonce: int) -> None:
    """Write the nonce of this process, the ps `name`, to its own server, where the other tasks read it.

    Raises TimeoutError after 10 s.
    """
    import tensorflow as tf

    def write() -> None:
        device = _device(name)
        config = tf.compat.v1.ConfigProto(device_filters=[device])
        with tf.Graph().as_default() as graph, tf.compat.v1.Session(server.target, graph, config) as session:
            session.run(_Nonce(name, device).assign(nonce))

    within(_SECONDS_TO_READ, write)


def places_of(variables: Mapping[tf.Operation, int], task: str) -> dict[str, int]:
    """Return {"<task> <variable's name>": bytes}, such as {"ps0 weights": 4000}.

    `variables` is {variable's operation: bytes}. A variable without a device lies on `task`, this process's
    task. With more than 1000 variables, each task has one entry: "<task> <count> variables <digest of the
    names>".
    """
    sizes: dict[str, int] = {}
    for variable, size in variables.items():
        container, shared_name = (variable.get_attr(name).decode() for name in ("container", "shared_name"))
        name = "/".join(filter(None, [container, shared_name or variable.name]))
        sizes[f"{place_of(variable.device, task)} {name}"] = size
    if len(sizes) <= _MOST_VARIABLES:
        return sizes
    names_on: dict[str, list[str]] = {}
    for name in sorted(sizes):
        names_on.setdefault(name.partition(" ")[0], []).append(name)
    return {
        f"{place} {len(names)} variables {_digest(names)}": sum(sizes[name] for name in names)
        for place, names in names_on.items()
    }


def _digest(names: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]


def place_of(device: str, task: str) -> str:
    """Return the task of a device: "ps0" for "/job:ps/task:0", and for "/job:ps".

    Return `task`, this process's, if the device names no job or "localhost".
    """
    import tensorflow as tf

    spec = tf.DeviceSpec.from_string(device or "")
    return f"{spec.job}{spec.task or 0}" if spec.job and spec.job != "localhost" else task


def _device(place: str) -> str:
    """Return the CPU of a task: "/job:ps/task:0/cpu:0" for "ps0".

    For "", return "", which means the session's own task.
    """
    if not place:
        return ""
    job = place.rstrip("0123456789")
    return f"/job:{job}/task:{place.removeprefix(job)}/cpu:0"


class _Nonce:
    """The operations that write and read a task's nonce, added to the default graph."""

    def __init__(self, name: str, device: str) -> None:
        import tensorflow as tf

        self._device = device
        with tf.device(device):
            self._handle = tf.raw_ops.VarHandleOp(
                dtype=tf.int64, shape=[], container=_CONTAINER, shared_name=f"nonce_of_{name}"
            )
            self.is_set = tf.raw_ops.VarIsInitializedOp(resource=self._handle)
            self.value = tf.raw_ops.ReadVariableOp(resource=self._handle, dtype=tf.int64)

    def assign(self, nonce: int) -> tf.Operation:
        import tensorflow as tf

        with self._handle.graph.as_default(), tf.device(self._device):
            return tf.raw_ops.AssignVariableOp(resource=self._handle, value=tf.constant(nonce, tf.int64))


def _read(session: tf.compat.v1.Session, nonces: Mapping[str, _Nonce]) -> dict[str, int]:
    """Return {task: nonce} of the tasks whose nonce is set."""
    are_set = session.run({name: nonce.is_set for name, nonce in nonces.items()})
    values = session.run({name: nonces[name].value for name, is_set in are_set.items() if is_set})
    return {name: int(value) for name, value in values.items()}


def _read_alike(variable: tf.Variable) -> tf.Tensor:
    """Return a new tensor of the default graph that reads `variable`, which is in another graph."""
    import tensorflow as tf

    node = tf.compat.v1.NodeDef()
    node.CopyFrom(variable.op.node_def)
    node.attr.pop("_class", None)  # this attribute names operations that this graph lacks
    (copy,) = tf.import_graph_def(
        tf.compat.v1.GraphDef(node=[node]), return_elements=[f"{node.name}:0"], name=""
    )
    with tf.device(node.device):
        if copy.dtype == tf.resource:
            return tf.raw_ops.ReadVariableOp(resource=copy, dtype=variable.dtype.base_dtype)
        return tf.identity(copy)
