"""The files that roles write to hosts."""

import json
import re

import pytest

from psfleet.inventory.variables import TRAINER_RULES
from tests.roles.rendered import PLAN, SIGNED, files_of, trainer_files
from trainer.contract.plan import ClusterPlan, PlannedTask
from trainer.contract.rules import SettingsError


def test_the_configuration_of_the_login_lists_each_host_of_the_plan_once() -> None:
    text = files_of("ssh_mesh")["/etc/psfleet/ssh/.ssh/config"]
    entries = [
        line.split() for line in text.splitlines() if line.startswith(("Host ", "    HostName", "    Port"))
    ]
    assert entries == [
        ["Host", "here"],
        ["HostName", "10.0.0.1"],
        ["Port", "22"],
        ["Host", "there"],
        ["HostName", "fd00::2"],
        ["Port", "2022"],
        ["Host", "here", "there"],
    ]


def test_the_files_of_unsigned_keys_contain_a_placeholder() -> None:
    signed = {**SIGNED, "authorities": {}, "certificates": {"here": {}}}
    found = files_of("ssh_mesh", __ssh_mesh_signed=signed)
    unsigned = [path for path, content in found.items() if "signed when" in content]
    assert [path.rpartition("/")[2] for path in unsigned] == [
        "user_ca.pub",
        "host-cert.pub",
        "id_ed25519-cert.pub",
        "known_hosts",
    ]


def test_a_plan_on_a_host_has_what_the_tasks_need_of_it() -> None:
    found = json.loads(trainer_files()["/etc/psfleet/plan.json"])
    assert found == {name: PLAN.to_json()[name] for name in ("version", "cluster_name", "hash", "tasks")}


def test_each_unit_of_tasks_reads_the_variables_of_the_inventory_before_those_of_psfleet() -> None:
    found = trainer_files()
    said = found["/etc/psfleet/environment.env"].splitlines()[1:]
    assert 'SAID="a \\"b\\" \'c\' \\\\d $e %f"' in said
    units = ["ps", "worker", "chief", "server", "evaluator", "evaluation", "doctor"]
    for unit in units:
        files = re.findall(
            r"^EnvironmentFile=-?(.*)", found[f"/etc/systemd/system/psfleet-{unit}@.service"], re.MULTILINE
        )
        assert files[0] == "/etc/psfleet/environment.env", unit
        assert len(files) > 1, unit


def test_a_variable_that_psfleet_sets_or_that_its_sandbox_removes_is_refused() -> None:
    """It would be ignored; and systemd prefers an environment file to a variable of the unit itself."""
    gpu = ClusterPlan("lab", (PlannedTask("worker", 0, "here", "10.0.0.1", 2222, (0,)),))
    found = {**trainer_files(), **files_of("trainer", gpu, environment="gpu-python3.11-x86_64")}
    own = [text for path, text in found.items() if "/tasks/" in path]
    units = [text for path, text in found.items() if re.search(r"psfleet-(?!metrics).*\.service$", path)]
    names = set(re.findall(r"^(\w+)=", "\n".join(own), re.MULTILINE))
    names |= set(re.findall(r"^Environment=(\w+)=", "\n".join(units), re.MULTILINE))
    for removed in re.findall(r"^UnsetEnvironment=(.*)", "\n".join(units), re.MULTILINE):
        names |= set(removed.split())
    assert names >= {"TF_CONFIG", "XLA_FLAGS", "HOME", "PSFLEET_SHUTDOWN_FILE", "LD_PRELOAD"}
    for name in names:
        with pytest.raises(SettingsError, match=f"{name} is 'x'; expected no variable of this name"):
            TRAINER_RULES["trainer_environment"].convert({name: "x"})
