"""What every part of a task needs to know about it, and how it joins the cluster."""

import os
import time
from dataclasses import dataclass, field

import tensorflow as tf

from trainer.contract.exit_codes import CLUSTER_BROKE
from trainer.contract.records import RecordWriter, draw_nonce
from trainer.contract.settings import TrainingSettings
from trainer.coordination.bounded_calls import runtime_config
from trainer.process import gpus
from trainer.process.cluster import Cluster
from trainer.process.failure import StopRequested, TaskFailure
from trainer.process.flags import Options
from trainer.process.port_probes import require_own
from trainer.process.progress_writer import ProgressWriter
from trainer.process.stop_request import StopRequest

v1 = tf.compat.v1
# How long to wait for a ps where the setting says not to wait for workers.
_DEADLINE_WITHOUT_BARRIER = 120.0
# Deprecation warnings speak to who writes this program, not to who runs it.
tf.get_logger().setLevel("ERROR")


@dataclass
class RunningTask:
    """What every part of a task knows of it.

    `progress` is where it tells how far it is, `target` where its sessions go once it has joined the cluster.
    `stop` is set by SIGTERM; `started` is in seconds of the monotonic clock.
    """

    options: Options
    records: RecordWriter
    stop: StopRequest = field(default_factory=StopRequest)
    nonce: int = field(default_factory=draw_nonce)
    started: float = field(default_factory=time.monotonic)
    progress: ProgressWriter = field(init=False)
    target: str = ""
    # Held for as long as the task lives: without a reference it would go away.
    server: tf.compat.v1.train.Server | None = None

    def __post_init__(self) -> None:
        """The chief alone writes down where the run stands."""
        directory = self.options.run_directory if self.cluster.is_chief else None
        path = directory / "progress.json" if directory else None
        self.progress = ProgressWriter(self.options.identity.run_id, self.cluster.workers, path)

    @property
    def cluster(self) -> Cluster:
        """The cluster and this task's place in it."""
        return self.options.cluster

    @property
    def settings(self) -> TrainingSettings:
        """What the run trains."""
        return self.options.settings

    @property
    def threads(self) -> int:
        """As many as the settings say, else this task's share of the cores that it may use."""
        share = len(os.sched_getaffinity(0)) // self.cluster.listeners_on_host
        return self.settings.threads or max(1, share)

    @property
    def patience_seconds(self) -> float:
        """How long this task waits for another that does not answer."""
        return self.settings.barrier_deadline_seconds or _DEADLINE_WITHOUT_BARRIER

    def raise_if_stopping(self) -> None:
        """Raise StopRequested once the task has been told to stop."""
        if self.stop.is_set():
            raise StopRequested(f"{self.cluster.task} was told to stop")

    def join_cluster(self) -> None:
        """Listen on this task's port, or take the server that runs there; write `started`.

        READY is for the caller to say. Raises TaskFailure of class `cluster_broke` where the port is taken:
        its holder may be on its way out; and of class `configuration` where TensorFlow does not see the GPUs
        that this task was given.
        """
        cluster = self.cluster
        gpus.require_given(cluster.task, os.environ)
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
            port, said = cluster.address.rpartition(":")[2], error.message.splitlines()[0]
            remedy = f"something else may hold it; `ss -ltnp sport = :{port}` on this host names it"
            reason = f"{cluster.task} cannot listen on port {port} ({said}): {remedy}"
            raise TaskFailure(CLUSTER_BROKE, reason) from error
