"""Scripts whose flags have other names than psfleet's four run unchanged, by placeholders."""

import json
from pathlib import Path

import pytest

from tests.trainer.ports import free_ports
from tests.trainer.program.launched import Tasks, program
from trainer.contract.exit_codes import FINISHED, STOPPED

SCRIPTS = Path(__file__).with_name("other_flags")


def ports_in_a_row() -> list[int]:
    while (ports := free_ports(2))[1] != ports[0] + 1:
        pass
    return ports


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        (
            "dashes.py",
            [
                *("--job-name={job_name}", "--task-index", "{task_index}"),
                *("--cluster-spec={cluster_file}", "--hosts={cluster}"),
            ],
        ),
        ("positional.py", ["{job_name}", "{task_index}", "{ps_hosts}", "{worker_hosts}"]),
        (
            "counts.py",
            [
                *(
                    "--ps_hosts_num=1",
                    "--worker_hosts_num=1",
                    "--hostname={task_host}",
                    "--st_port_num=FIRST",
                ),
                *("--own_port={task_port}", "--job_name={job_name}", "--task_index={task_index}"),
            ],
        ),
    ],
)
def test_a_script_with_flags_of_its_own_trains_unchanged(
    tmp_path: Path, script: str, arguments: list[str]
) -> None:
    with Tasks(tmp_path, SCRIPTS / script, ps=1, worker=1) as tasks:
        ports = ports_in_a_row()
        tasks.cluster = {
            job: [f"127.0.0.1:{port}"] for job, port in zip(("ps", "worker"), ports, strict=True)
        }
        tasks.flags, tasks.tensorflow1 = False, True
        tasks.arguments = [argument.replace("FIRST", str(ports[0])) for argument in arguments]
        tasks.start()
        assert tasks.wait("worker0") == {"worker0": FINISHED}, tasks.outputs()
        assert "trained" in tasks.output("worker0").splitlines()
        assert tasks.stop("ps0") == {"ps0": STOPPED}


def test_each_placeholder_has_its_value_in_every_task(tmp_path: Path) -> None:
    tell = "import json, os, sys; json.dump(sys.argv[1:], open(os.environ['PSFLEET_JOB'], 'w'))"
    names = ("job_name", "task_index", "task_host", "task_port", "ps_hosts", "worker_hosts", "chief_hosts")
    with Tasks(tmp_path, program(tmp_path, tell), chief=1, ps=1, worker=2) as tasks:
        tasks.flags = False
        tasks.arguments = [f"{{{name}}}" for name in names] + ["{cluster}", "{cluster_file}"]
        tasks.start("chief0", "worker1")
        assert tasks.wait() == {"chief0": FINISHED, "worker1": FINISHED}
        chief, ps, workers = (tasks.cluster[job] for job in ("chief", "ps", "worker"))
        for job, index, address in (("chief", "0", chief[0]), ("worker", "1", workers[1])):
            folder = tasks.directory(f"{job}{index}")
            *given, cluster, file = json.loads((folder / job).read_text())
            host, port = address.split(":")
            assert given == [job, index, host, port, ps[0], ",".join(workers), chief[0]]
            assert json.loads(cluster) == tasks.cluster == json.loads(Path(file).read_text())
            assert Path(file).parent == folder
