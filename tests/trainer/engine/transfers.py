"""A cluster in this process, and the tensors that travel between its tasks in one step of a worker."""

from collections import Counter
from dataclasses import replace

import tensorflow as tf

from tests.trainer.ports import free_ports
from trainer.contract.settings import TrainingSettings
from trainer.coordination.ledger import OwnPart
from trainer.engine.replication import ENGINES
from trainer.engine.training import TrainingGraph, TrainingSession
from trainer.model.models import REGISTRY
from trainer.model.models.model import Model
from trainer.process.cluster import Cluster

v1 = tf.compat.v1


class Tasks:
    """Servers of so many ps and of two workers; they live as long as this process."""

    def __init__(self, ps: int) -> None:
        """Start them."""
        ps_hosts, worker_hosts = (tuple(f"127.0.0.1:{port}" for port in free_ports(n)) for n in (ps, 2))
        self.hosts = {"ps": ps_hosts, "worker": worker_hosts}
        spec = tf.train.ClusterSpec(self.hosts)
        self.servers = [
            v1.train.Server(spec, job_name=job, task_index=index)
            for job, hosts in (("worker", worker_hosts), ("ps", ps_hosts))
            for index in range(len(hosts))
        ]

    def target(self, worker: int) -> str:
        """Where a worker's sessions go."""
        return str(self.servers[worker].target)

    def cluster(self, worker: int, replication: str = "async") -> Cluster:
        """The cluster as a worker sees it."""
        ps_hosts, worker_hosts = self.hosts.values()
        return Cluster("worker", worker, ps_hosts, worker_hosts, replication=replication)

    def begin(
        self, worker: int, settings: TrainingSettings, model: Model | None = None
    ) -> tuple[TrainingGraph, TrainingSession]:
        """A worker's graph and its session, of the settings' model if there is no other; not initialised."""
        cluster = self.cluster(worker, settings.replication)
        model = model or REGISTRY[settings.model]
        graph = ENGINES[settings.replication](cluster, settings, model, model.load(settings, 2))
        if settings.replication == "in_graph":
            OwnPart(self.target(1), replace(cluster, index=1)).create({})
            graph.use_notes({})
        return graph, graph.session(self.target(worker))


def transfers_of(session: tf.compat.v1.Session, step: object) -> Counter[tuple[str, str]]:
    """(from, to) -> how many tensors go from one task to another, as in ("ps0", "worker1")."""
    typed = typed_transfers_of(session, step)
    return Counter((sender, receiver) for sender, receiver, _ in typed.elements())


def typed_transfers_of(session: tf.compat.v1.Session, step: object) -> Counter[tuple[str, str, tf.DType]]:
    """The same by what type of tensors they are."""
    options, metadata = v1.RunOptions(output_partition_graphs=True), v1.RunMetadata()
    session.run(step, options=options, run_metadata=metadata)
    return Counter(
        (sender, receiver, tf.as_dtype(node.attr["tensor_type"].type))
        for graph in metadata.partition_graphs
        for node in graph.node
        if node.op == "_Recv"
        for sender, receiver in [(_task(node.attr["send_device"].s), _task(node.attr["recv_device"].s))]
        if sender != receiver
    )


def _task(device: bytes) -> str:
    place = tf.DeviceSpec.from_string(device.decode())
    return f"{place.job}{place.task}"
