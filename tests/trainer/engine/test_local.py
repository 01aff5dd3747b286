"""One process that is the whole run: the same lines, records and checkpoints, and nothing else needed."""

import os
import signal
from pathlib import Path

from tests.trainer.processes import PAUSING, Cluster
from trainer.contract.exit_codes import STOPPED

LOCAL = ["--replication=local", "--model=linear"]


def test_a_local_run_trains_stops_and_resumes_in_one_process(tmp_path: Path) -> None:
    threads = 100 + 8 * (os.cpu_count() or 1)  # more than TensorFlow takes by itself
    with Cluster(tmp_path, ps=2, workers=3, flags=[*LOCAL, f"--threads={threads}"]) as cluster:
        cluster.start("worker0", flags=["--steps=1000000"], program=PAUSING)
        cluster.until(lambda: cluster.global_step() > 200, "200 global steps")
        status = Path(f"/proc/{cluster.only('worker0', 'started').pid}/status").read_text()
        # One pool within operations and one for them.
        assert int(status.partition("\nThreads:")[2].split()[0]) > threads
        cluster.signal("worker0", signal.SIGTERM)
        assert cluster.wait() == {"worker0": STOPPED}
        saved = cluster.records("worker0", "checkpointed")[-1].integer("global_step")
        assert cluster.only("worker0", "finished").integer("global_step") == saved > 200
        assert cluster.progress()["phase"] == "stopped"

        # People type this command line; a unit also passes the cluster's hosts, which are not needed.
        cluster.hosts = {"ps": [], "worker": []}
        cluster.start("worker0", flags=[f"--steps={saved + 300}", "--job_name=local"])
        assert cluster.wait() == {"worker0": 0}
        restored = cluster.only("worker0", "restored")
        assert restored.integer("global_step") == saved
        assert restored.fields["ps_parameters"] == {"worker0": {"variables": 2, "bytes": 8}}
        finished = cluster.records("worker0", "finished")[1]
        assert finished.integer("global_step") == saved + 300
        assert finished.integers("contributions") == {"worker0": saved + 300}
        assert finished.integer("local_step") == 300
        windows = [window for window in cluster.records("worker0", "step") if window.pid == finished.pid]
        assert sum(window.integer("steps") for window in windows) == 300

        cluster.assert_one_fingerprint("worker0")
        assert "fingerprint" not in cluster.records("worker0", "finished")[0].fields

        ready = cluster.records("worker0", "peers_ready")[1]
        nonce = cluster.records("worker0", "started")[1].integer("nonce")
        assert ready.integers("ps_nonces") == {}
        assert ready.integers("worker_nonces") == {"worker0": nonce}
        assert abs(cluster.metrics()["weight"] - 2) < 0.1
        assert "Step: 100, global step:" in cluster.output("worker0")
        assert cluster.progress()["contributions"] == [saved + 300]

    # It went on with the next examples: to the bit, it is the model of a run that was not stopped.
    with Cluster(tmp_path / "whole", ps=0, workers=1, flags=LOCAL) as whole:
        whole.start("worker0", flags=[f"--steps={saved + 300}"])
        assert whole.wait() == {"worker0": 0}
        assert whole.only("worker0", "finished").text("fingerprint") == finished.text("fingerprint")
