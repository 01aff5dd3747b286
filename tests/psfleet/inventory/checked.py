"""Inventories in files, read by Ansible in this process and checked as `cluster_plan` checks them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.vault import VaultSecretsContext
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager

from psfleet.inventory.ansible_inventory import plain_inventory
from psfleet.inventory.definitions import Definitions
from psfleet.inventory.problems import InventoryError, describe
from psfleet.run.cluster_facts import cluster_facts
from psfleet.run.table_bytes import with_files_to_edit
from tests.repository import ROOT

# Knows the roles' files from the first inventory on.
ROLES_LOADER = DataLoader()
# As the command line does it where no password is given.
VaultSecretsContext.initialize(VaultSecretsContext(secrets=[]))


def written(folder: Path, files: Mapping[str, object]) -> Path:
    """Write the files (name -> YAML content or text) of an inventory, and return its folder."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False)
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755 if text.startswith("#!") else 0o644)
    return folder


def checked(
    inventory: Path, command_line: Mapping[str, object] | None = None, proof: str = ""
) -> tuple[dict[str, Any], str]:
    """Return the facts of every play, and what is said of an inventory that is refused."""
    given = dict(command_line or {})
    loader = DataLoader()
    loader.set_basedir(str(ROOT / "playbooks"))  # Ansible looks for variables beside the playbook, too
    manager = InventoryManager(loader, sources=[str(inventory)])
    variables = VariableManager(loader, manager)
    variables._extra_vars = given
    of_task = {
        "groups": manager.get_groups_dict(),
        "hostvars": HostVars(manager, variables, loader),
        "ansible_inventory_sources": [str(inventory)],
    }
    definitions = Definitions([str(inventory)], manager, loader, given)
    try:
        found = cluster_facts(plain_inventory(of_task, ROLES_LOADER, given), proof)
    except InventoryError as error:
        return {}, describe(error.problems, definitions.cure)
    found["cluster_data"]["tables"] = with_files_to_edit(found["cluster_data"]["tables"], definitions.cure)
    return found, ""


def facts(
    inventory: Path, command_line: Mapping[str, object] | None = None, proof: str = ""
) -> dict[str, Any]:
    """Return the facts of an inventory that is good."""
    found, refusal = checked(inventory, command_line, proof)
    assert not refusal, refusal
    return found


def hosts_file(ps: object, worker: object, **more: object) -> dict[str, object]:
    return {"tf_cluster": {"children": {"ps": {"hosts": ps}, "worker": {"hosts": worker}}, **more}}


def placed(found: Mapping[str, Any]) -> dict[str, str]:
    """Return task -> "host:port", and the GPUs where it has some, of the facts."""
    return {
        f"{task['job']}{task['index']}": f"{task['host']}:{task['port']}"
        + (f" GPU {','.join(map(str, task['gpus']))}" if task["gpus"] else "")
        for task in found["cluster_plan"]["tasks"]
    }
