"""The state that all parts of a task share, and how the task joins the cluster."""

import os
import time
from dataclasses import dataclass, field

import tensorflow as tf

from trainer.contract.exit_codes import CLUSTER_BROKE
from trainer.contract.records import RecordWriter, draw_nonce, events_file
from trainer.contract.settings import TrainingSettings
from trainer.coordination.bounded_calls import runtime_config
from trainer.host.task_traces import took_part
from trainer.process import gpus
from trainer.process.cluster import Cluster
from trainer.process.failure import StopRequested, TaskFailure
from trainer.process.flags import Options
from trainer.process.lives import Lives
from trainer.process.port_probes import require_own
from trainer.process.progress_writer import ProgressWriter
from trainer.process.resources import ResourceUse
from trainer.process.stop_request import StopRequest

v1 = tf.compat.v1
# The seconds to wait for a ps if `barrier_deadline_seconds` is 0: do not wait for workers.
_DEADLINE_WITHOUT_BARRIER = 120.0
# Deprecation warnings are for the authors of this program, not for its users.
tf.get_logger().setLevel("ERROR")


@dataclass
class RunningTask:
    """The state that all parts of a task share.

    Attributes:
        stop: set by SIGTERM.
        lives: counts the task's processes that made no progress.
        nonce: this process's nonce.
        started: when this process started, in seconds of the monotonic clock.
        progress: reports how far the task is.
        resources: writes the `resources` records.
        took_part: whether an earlier process of this task took part in the run; False without a run
            directory.
        seconds_to_gather: how long this task waits for others at its start: `recovery_deadline_seconds` if it
            took part in the run before, else `patience_seconds`.
        target: the address of the server for this task's sessions; "" before the task has joined the cluster.
        server: this process's own server; None if it has none, or before the task has joined the cluster.

    """

    options: Options
    records: RecordWriter
    stop: StopRequest = field(default_factory=StopRequest)
    lives: Lives = field(default_factory=lambda: Lives(None, ""))
    nonce: int = field(default_factory=draw_nonce)
    started: float = field(default_factory=time.monotonic)
    progress: ProgressWriter = field(init=False)
    resources: ResourceUse = field(init=False)
    took_part: bool = field(init=False)
    seconds_to_gather: float = field(init=False)
    target: str = ""
    # The reference is kept, because TensorFlow ends a server that nothing refers to.
    server: tf.compat.v1.train.Server | None = None

    def __post_init__(self) -> None:
        """Create the progress writer; only the chief's progress writer writes `progress.json`."""
        directory = self.options.run_directory if self.cluster.is_chief else None
        path = directory / "progress.json" if directory else None
        self.progress = ProgressWriter(self.options.identity.run_id, self.cluster.workers, path)
        self.resources = ResourceUse(self.records)
        run, own = self.options.run_directory, self.cluster
        self.took_part = run is not None and took_part(
            events_file(run, own.job, own.index), serves=own.serves
        )
        deadline = self.settings.recovery_deadline_seconds
        self.seconds_to_gather = deadline if self.took_part else self.patience_seconds

    @property
    def cluster(self) -> Cluster:
        """The cluster, and this task's place in it."""
        return self.options.cluster

    @property
    def settings(self) -> TrainingSettings:
        """The training settings."""
        return self.options.settings

    @property
    def threads(self) -> int:
        """The setting `threads`; by default this task's share of the cores that it may use, at least 1."""
        share = len(os.sched_getaffinity(0)) // self.cluster.listeners_on_host
        return self.settings.threads or max(1, share)

    @property
    def patience_seconds(self) -> float:
        """How long this task waits for a task that does not answer, in seconds.

        This is `barrier_deadline_seconds`, or 120 if that is 0.
        """
        return self.settings.barrier_deadline_seconds or _DEADLINE_WITHOUT_BARRIER

    def raise_if_stopping(self) -> None:
        """Raise StopRequested if the task was told to stop."""
        if self.stop.is_set():
            raise StopRequested(f"{self.cluster.task} was told to stop")

    def join_cluster(self) -> None:
        """Listen on this task's port, or use the server that listens there; write the record `started`.

        A local run gets a server of its own, without a fixed port. The caller notifies READY. Raises
        TaskFailure (`cluster_broke`) if the port is taken, because its holder may be about to end. Raises
        TaskFailure (`configuration`) if TensorFlow does not see the GPUs that this task was given.
        """
        cluster = self.cluster
        gpus.require_visible(cluster.task, os.environ)
        config = runtime_config(self.threads, self.settings.gpu_memory_fraction)
        if cluster.is_local:
            self.server = v1.train.Server.create_local_server(config=config)
        elif cluster.serves or not cluster.existing_servers:
            self.server = self._listen(config)
        self.target = self.server.target if self.server else f"grpc://{cluster.address}"
        address = self.target.removeprefix("grpc://") if cluster.is_local else cluster.address
        self.records.write_started(self.settings.as_dict(), tf.__version__, address, self.nonce)

    def _listen(self, config: tf.compat.v1.ConfigProto) -> tf.compat.v1.train.Server:
        cluster = self.cluster
        require_own(cluster.task, cluster.address)
        try:
            return v1.train.Server(
                tf.train.ClusterSpec(cluster.jobs),
                job_name="ps" if cluster.job == "ps" else "worker",
                task_index=cluster.index,
                config=config,
            )
        except tf.errors.OpError as error:
            port, message = cluster.address.rpartition(":")[2], error.message.splitlines()[0]
            remedy = f"something else may hold it; `ss -ltnp sport = :{port}` on this host names it"
            reason = f"{cluster.task} cannot listen on port {port} ({message}): {remedy}"
            raise TaskFailure(CLUSTER_BROKE, reason) from error
