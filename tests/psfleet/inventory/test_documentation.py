"""The examples of docs/inventory.md, read by Ansible, give the results on the page."""

import re
import shutil
from pathlib import Path

import pytest
import yaml

from psfleet.inventory.addresses import port_of_sshd
from tests.psfleet.inventory.checked import facts, placed, written
from tests.repository import ROOT

PAGE = (ROOT / "docs" / "inventory.md").read_text(encoding="utf-8")
SECTIONS = {part.partition("\n")[0].strip("# "): part for part in PAGE.split("\n## ")}
EXAMPLE = re.compile(r"```yaml\n# inventory/cluster/(\S+)\n(.*?)```", re.DOTALL)
PLACE = re.compile(r"`((?:ps|worker|chief)\d)`\s+on\s+(node\d:\d+)(?:\s+with\s+(GPU \d(?:,\d)*))?")
# The number of places on the page for each example, so that no example is left out.
PLACES = {"The inventory": 4, "Several tasks on a host": 5, "GPUs": 3, "A chief": 4}


def test_every_example_is_tested() -> None:
    examples = [title for title, body in SECTIONS.items() if EXAMPLE.search(body)]
    assert len(EXAMPLE.findall(PAGE)) == PAGE.count("```yaml") == 11
    assert examples == [
        "The inventory",
        "Two addresses of a host",
        "Several tasks on a host",
        "GPUs",
        "How the workers train together",
        "Data",
        "A program of your own",
        "What a program may reach",
        "A chief",
        "Environment variables",
    ]


@pytest.mark.parametrize("title", [title for title, body in SECTIONS.items() if EXAMPLE.search(body)])
def test_an_example_gives_the_tasks_on_the_page(
    title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A section without hosts uses those of the first example.
    files: dict[str, object] = dict(EXAMPLE.findall(SECTIONS["The inventory"]))
    del files["group_vars/tf_cluster.yml"]
    files |= dict(EXAMPLE.findall(SECTIONS[title]))
    shutil.copytree(ROOT / "trainer" / "model" / "digits", tmp_path / "mnist")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(ROOT)  # where `ansible-playbook` is typed
    shown = facts(written(tmp_path / "cluster", files))
    found = placed(shown)
    said = PLACE.findall(SECTIONS[title])
    assert len(said) == PLACES.get(title, 0)
    for task, place, gpus in said:
        assert found[task] == " ".join(filter(None, (place, gpus)))
    tasks = shown["cluster_settings"]["tasks"]
    if title == "Several tasks on a host":
        assert len(found) == len(said)
        sizes = {task: tasks[task]["batch_size"] for task in ("worker0", "worker2", "worker3")}
        assert sizes == {"worker0": 50, "worker2": 100, "worker3": 20}
        assert tasks["worker3"]["threads"] == 2
    if title == "Two addresses of a host":
        hosts = yaml.safe_load(str(files["hosts.yml"]))["tf_cluster"]["children"]
        of_hosts = hosts["ps"]["hosts"] | hosts["worker"]["hosts"]
        assert {host: port_of_sshd(host, of_host) for host, of_host in of_hosts.items()} == {
            "node1": 22,
            "node2": 22,
            "node3": 2022,
        }
    if title == "Data":
        assert shown["cluster_data"]["source"] == str(tmp_path / "mnist")
        assert all(read == ["/opt/psfleet/data"] for read in shown["cluster_data"]["directories"].values())
    if title == "A program of your own":
        assert shown["cluster_programs"][0]["arguments"] == ["--steps=400"]
