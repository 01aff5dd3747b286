import json
import shlex
from pathlib import Path

import pytest

from plugins.filter.filters import tunnel_command
from psfleet.carry.carried_manifest import find_files
from psfleet.run.tensorboard_folders import EVENTS, run_folders, runs_going_on, summary_folders
from trainer.contract.plan import ClusterPlan, PlannedTask

TASKS = (
    PlannedTask(job="ps", index=0, host="a", address="10.0.0.1", port=2222),
    PlannedTask(job="worker", index=0, host="b", address="10.0.0.2", port=2222),
)


def make_run(runs: Path, name: str, state: str = "ended", *, cluster: str = "psfleet") -> Path:
    folder = runs / name
    (folder / "summaries" / "worker0").mkdir(parents=True)
    (folder / "summaries" / "worker0" / "events.out.tfevents.1.b").write_bytes(b"x")
    plan = ClusterPlan(cluster, TASKS).to_json()
    settings = {"training": {"replication": "async", "existing_servers": False}, "tasks": {}, "program": None}
    for file, content in {"plan": plan, "settings": settings, "state": {"state": state}}.items():
        (folder / f"{file}.json").write_text(json.dumps(content))
    return folder


def test_all_runs_of_the_cluster_with_summaries_are_shown(tmp_path: Path) -> None:
    make_run(tmp_path, "one")
    make_run(tmp_path, "two")
    make_run(tmp_path, "of another cluster", cluster="other")
    (make_run(tmp_path, "empty") / "summaries" / "worker0" / "events.out.tfevents.1.b").unlink()
    runs = run_folders(tmp_path, "", "psfleet")
    assert [run.name for run in runs] == ["empty", "one", "two"]
    assert summary_folders(runs) == {name: f"{tmp_path}/{name}/summaries" for name in ("one", "two")}
    assert [run.name for run in run_folders(tmp_path, "two", "psfleet")] == ["two"]


def test_summaries_with_one_name_on_two_hosts_are_both_shown(tmp_path: Path) -> None:
    run = make_run(tmp_path, "one")
    other = run / "other_hosts" / "c" / "summaries"
    other.mkdir(parents=True)
    (other / "events.out.tfevents.2.c").write_bytes(b"y")
    assert summary_folders([run]) == {"one": f"{run}/summaries", "one/c": str(other)}


def test_event_files_are_found_wherever_a_program_wrote_them(tmp_path: Path) -> None:
    run = make_run(tmp_path, "one")
    for name in (
        "output/tb/train",
        "saved/worker1/tmp/tb",
        "checkpoints",
        "other_hosts/c/output",
        "other_hosts/c/summaries",
    ):
        (run / name).mkdir(parents=True, exist_ok=True)
        (run / name / "events.out.tfevents.2.c").write_bytes(b"y")
        (run / name / "model.ckpt-5.index").write_bytes(b"z" * 99)
    (run / "logs").mkdir()
    sources = summary_folders([run])
    assert sources == {
        "one": f"{run}/summaries",
        "one/output": f"{run}/output",
        "one/saved": f"{run}/saved",
        "one/checkpoints": f"{run}/checkpoints",
        "one/c": f"{run}/other_hosts/c/summaries",
        "one/c/output": f"{run}/other_hosts/c/output",
    }
    # Nothing that lies beside them is carried.
    assert sorted(find_files({name: Path(source) for name, source in sources.items()}, EVENTS)) == [
        "one/c/events.out.tfevents.2.c",
        "one/c/output/events.out.tfevents.2.c",
        "one/checkpoints/events.out.tfevents.2.c",
        "one/output/tb/train/events.out.tfevents.2.c",
        "one/saved/worker1/tmp/tb/events.out.tfevents.2.c",
        "one/worker0/events.out.tfevents.1.b",
    ]


def test_several_runs_are_separated_by_commas(tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        make_run(tmp_path, name)
    assert [run.name for run in run_folders(tmp_path, "three, one,three", "psfleet")] == ["three", "one"]
    with pytest.raises(ValueError, match="run_id is 'four'; expected the name of a folder in"):
        run_folders(tmp_path, "one,four", "psfleet")


@pytest.mark.parametrize("name", ["..", "one,..", "three", "../one", "one/summaries"])
def test_a_run_without_a_folder_is_refused(tmp_path: Path, name: str) -> None:
    make_run(tmp_path, "one")
    with pytest.raises(ValueError, match=r"expected (the name of a folder in|lower case)"):
        run_folders(tmp_path / "one" if name == "../one" else tmp_path, name, "psfleet")


def test_only_runs_that_are_going_on_are_fetched_from_the_hosts(tmp_path: Path) -> None:
    make_run(tmp_path, "one")
    make_run(tmp_path, "stopped", "stopped")
    make_run(tmp_path, "two", "running")
    (found,) = runs_going_on(run_folders(tmp_path, "", "psfleet"))
    assert (found["id"], found["lead"]["name"]) == ("two", "worker0")
    assert [task["name"] for task in found["tasks"]] == ["ps0", "worker0"]


def test_the_tunnel_uses_ansibles_connection_variables() -> None:
    variables = {
        "inventory_hostname": "node1",
        "ansible_host": "10.0.0.1",
        "ansible_port": 2200,
        "ansible_user": "ops",
        "ansible_ssh_private_key_file": "/keys/my key",
        "ansible_ssh_common_args": "-o 'UserKnownHostsFile=\"/a b\"'",
    }
    assert shlex.split(tunnel_command(variables, 6007, "/run/a.sock")) == [
        *["ssh", "-N", "-L", "6007:/run/a.sock", "-p", "2200", "-i", "/keys/my key"],
        *["-o", 'UserKnownHostsFile="/a b"', "ops@10.0.0.1"],
    ]
    alone = tunnel_command({"inventory_hostname": "node1"}, 6006, "/run/a.sock")
    assert alone == "ssh -N -L 6006:/run/a.sock node1"


def test_aliases_of_ansibles_connection_variables_are_used() -> None:
    variables = {
        "inventory_hostname": "node1",
        "ansible_ssh_host": "10.0.0.2",
        "ansible_ssh_port": 2201,
        "ansible_ssh_user": "ops",
        "ansible_private_key_file": "/keys/mine",
        "ansible_ssh_common_args": "-o A=1",
        "ansible_ssh_extra_args": "-o B=2",
    }
    expected = "ssh -N -L 6006:/run/a.sock -p 2201 -i /keys/mine -o A=1 -o B=2 ops@10.0.0.2"
    assert tunnel_command(variables, 6006, "/run/a.sock") == expected
    others = {**variables, "ansible_host": "10.0.0.1", "ansible_port": 22}
    assert tunnel_command(others, 6006, "/run/a.sock") == expected
