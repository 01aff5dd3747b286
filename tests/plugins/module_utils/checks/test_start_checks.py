"""The checks before tasks start, run on this machine."""

import os
import pwd
import socket
from pathlib import Path
from typing import Any

from plugins.module_utils.checks.start_checks import failed_checks


def test_held_ports_missing_data_and_a_missing_metrics_directory_are_failed_checks(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        tasks = [{"job": "worker", "index": 1, "port": port, "host": "node1"}]
        asked: dict[str, Any] = {"starting": tasks, "metrics_directory": "", "tables": {}}
        asked["data_directories"] = [str(Path.cwd()), str(tmp_path / "mnist")]
        ports, data = failed_checks({**asked, "data_carried": False})
        assert (ports["name"], ports["task"]) == ("ports", "worker1")
        name = pwd.getpwuid(os.geteuid()).pw_name
        assert f"port {port} of worker1 is held by " in ports["found"]
        assert f"(pid {os.getpid()}" in ports["found"]
        assert f" of user {name}: " in ports["found"]
        assert data["found"] == f"trainer_data_dir is {tmp_path}/mnist, which is no folder here"
        (_, carried) = failed_checks({**asked, "data_carried": True})
        assert carried["remedy"] == "run ansible-playbook deploy.yml"
        tables = {"bytes": 2**60, "what": "for the part of ps0", "remedy": "have more ps"}
        (*_, memory) = failed_checks({**asked, "data_carried": True, "tables": tables})
        assert (memory["name"], memory["remedy"], memory["task"]) == ("memory", "have more ps", "")
        assert memory["found"].endswith(", of these 1073741824.00 GiB for the part of ps0, are needed")
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-images-idx3-ubyte").touch()
    assert failed_checks({**asked, "data_carried": True}) == []
    for_metrics = {"starting": [], "metrics_directory": "/no/such", "data_carried": False}
    (metrics,) = failed_checks({**asked, **for_metrics, "data_directories": ["/no/such"]})
    assert metrics["found"].startswith("trainer_metrics_directory is '/no/such', and this host has no such")
    assert "group_vars/tf_cluster.yml" in metrics["remedy"]
