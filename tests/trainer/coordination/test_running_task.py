"""The default number of a task's threads, and its port."""

import os
import pwd
import socket

import pytest

from tests.networks import socket_of
from trainer.contract.exit_codes import CLUSTER_BROKE
from trainer.contract.records import RecordWriter
from trainer.coordination.running_task import RunningTask
from trainer.process.failure import TaskFailure
from trainer.process.flags import parse

HOSTS = ["--ps_hosts=10.0.0.1:2222,10.0.0.2:2222", "--worker_hosts=10.0.0.1:2223,10.0.0.3:2222,[::1]:2222"]


def _task(*flags: str) -> RunningTask:
    options = parse(list(flags))
    return RunningTask(options, RecordWriter(None, options.identity))


@pytest.mark.parametrize(
    ("cores", "flags", "threads"),
    [
        (6, ["--job_name=ps", "--task_index=0"], 3),
        (6, ["--job_name=worker", "--task_index=0"], 3),
        (5, ["--job_name=worker", "--task_index=0"], 2),
        (1, ["--job_name=worker", "--task_index=0"], 1),
        (6, ["--job_name=ps", "--task_index=1"], 6),
        (6, ["--job_name=worker", "--task_index=1"], 6),
        (6, ["--job_name=worker", "--task_index=2"], 6),
        (6, ["--job_name=server", "--task_index=0", "--existing_servers=true"], 3),
        (6, ["--job_name=worker", "--task_index=0", "--threads=9"], 9),
    ],
)
def test_the_tasks_of_a_host_share_its_cores_by_default(
    monkeypatch: pytest.MonkeyPatch, cores: int, flags: list[str], threads: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cores)))
    assert _task(*HOSTS, *flags).threads == threads


def test_a_local_run_and_its_server_use_all_available_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(5)))
    task = _task("--job_name=local", *HOSTS)
    task.join_cluster()
    assert task.server is not None
    given = task.server.server_def.default_session_config
    assert (given.intra_op_parallelism_threads, given.inter_op_parallelism_threads) == (5, 5)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes another user's socket")
def test_no_task_shares_its_port_with_another_user() -> None:
    """TensorFlow would listen on IPv4 alone, and clients by IPv6 would reach the other user's process."""
    with socket_of(pwd.getpwnam("nobody").pw_uid, socket.AF_INET6) as stranger:
        stranger.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        stranger.bind(("::", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        hosts = [f"--ps_hosts=localhost:{port}", "--worker_hosts=10.0.0.1:2223"]
        with pytest.raises(
            TaskFailure, match=f"ps0 cannot listen on port {port}, held by user nobody"
        ) as raised:
            _task("--job_name=ps", "--task_index=0", *hosts).join_cluster()
    assert raised.value.code == CLUSTER_BROKE
