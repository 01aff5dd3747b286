"""Lists the runs of which one host has files, packs the files of a run, or removes collected runs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_runs
short_description: Lists the runs of which one host has files, packs the files of a run, or removes collected runs
description:
  - The files of a run are those that its tasks have left in the directories of state and of logs.
  - V(state=removed) removes older runs that the controller has collected. A run with a task that is alive is never
    removed.
  - V(state=packed) packs the files of a run into one archive that the connecting user may fetch. No link is followed in
    any part of a path, because tasks wrote these files.
  - An option of another state is refused.
author: psfleet (@psfleet)
options:
  state:
    description: What to do.
    type: str
    choices:
      - listed
      - removed
      - packed
    default: listed
  collected:
    description: Runs that were collected completely, newest first. Only they may be removed. V(state=removed) requires it.
    type: list
    elements: str
  stay:
    description: How many of the newest runs in O(collected) stay. V(state=removed) requires it.
    type: int
  run_id:
    description: The run to pack. V(state=packed) requires it.
    type: str
  limit_megabytes:
    description: The most megabytes of files to pack; other files stay on the host. V(state=packed) requires it.
    type: int
  limit_of:
    description: The variable with that limit.
    type: str
    default: training_run_collect_megabytes
  folders:
    description: Folders of the run to pack, such as V(events); by default all.
    type: list
    elements: str
    default: []
  only:
    description: Pack only the files with this text in their names.
    type: str
    default: ''
  names:
    description: The names of the tasks of this host whose files in other places are packed, too, as their program saved them.
    type: list
    elements: str
    default: []
  collect:
    description: 'Further paths to pack: below each task''s V(/tmp), or in the run''s directory.'
    type: list
    elements: str
    default: []
  owner:
    description: Number of the user that fetches the archive. V(state=packed) requires it.
    type: int
  paths:
    description: The fact V(cluster_paths).
    type: dict
    required: true
attributes:
  check_mode:
    support: full
    description: It changes nothing, and says what it would change.
"""

EXAMPLES = r"""
- name: List the runs that the host still has
  psfleet.cluster.host_runs:
    paths: "{{ cluster_paths }}"

- name: Pack what a run has recorded on this host
  psfleet.cluster.host_runs:
    state: packed
    run_id: night-1
    folders: [events, logs]
    limit_megabytes: 100
    paths: "{{ cluster_paths }}"
    owner: 1000
"""

RETURN = r"""
runs:
  returned: if listed
  type: list
  description: The newest runs first, each with `run_id`, `size` in bytes, `changed` (Unix seconds) and `global_step` (null if
    the run reported none on this host).
  elements: dict
removed:
  returned: if removed
  type: list
  description: The removed runs.
  elements: str
freed_bytes:
  returned: if removed
  type: int
  description: The disk space of the removed runs, in bytes.
path:
  returned: if packed
  type: str
  description: The path of the archive, which only its owner can read. Remove it after it was fetched.
size:
  returned: if packed
  type: int
  description: The bytes of the archive.
files:
  returned: if packed
  type: int
  description: The number of files in the archive.
left_out:
  returned: if packed
  type: list
  description: The files that stay on the host, or changed while they were packed, each with the reason.
  elements: str
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.module import make_module_with_states
from ..module_utils.tasks.kept_runs import Runs
from ..module_utils.tasks.run_archive import pack_run

ARGUMENTS: dict[str, Any] = {
    "state": {"choices": ["listed", "removed", "packed"], "default": "listed"},
    "collected": {"type": "list", "elements": "str"},
    "stay": {"type": "int"},
    "run_id": {},
    "limit_megabytes": {"type": "int"},
    "limit_of": {"default": "training_run_collect_megabytes"},
    "folders": {"type": "list", "elements": "str", "default": []},
    "only": {"default": ""},
    "names": {"type": "list", "elements": "str", "default": []},
    "collect": {"type": "list", "elements": "str", "default": []},
    "owner": {"type": "int"},
    "paths": {"type": "dict", "required": True},
}
REQUIRED = {"removed": ("collected", "stay"), "packed": ("run_id", "limit_megabytes", "owner")}
OPTIONAL = {"packed": ("limit_of", "folders", "only", "names", "collect")}


def pack(module: AnsibleModule) -> None:
    """Pack the files of a run, and exit with the answer; in check mode, pack nothing."""
    if module.check_mode:
        module.exit_json(changed=False, path="", size=0, files=0, left_out=[])
    try:
        answer, full = pack_run(module.params)
    except ValueError as error:
        module.fail_json(msg=str(error))
    if full:
        place = Path(answer["path"]).parent
        module.warn(f"{'; '.join(full)}: packed in {place} instead, its records before all else")
    module.exit_json(changed=False, **answer)


def list_or_remove(module: AnsibleModule) -> None:
    """List the runs, or remove collected runs, as `state` says, and exit with the answer.

    In check mode nothing is removed, and the answer has what would be removed.
    """
    values = module.params
    try:
        runs = Runs(values["paths"])
        if values["state"] == "listed":
            module.exit_json(changed=False, runs=runs.newest())
        going = runs.unneeded(values["collected"], values["stay"])
        sizes = runs.sizes(going)
        for name in going if not module.check_mode else ():
            if problem := runs.remove(name):
                module.warn(problem)
    except (OSError, ValueError) as error:
        module.fail_json(msg=f"The runs of this host: {error}")
    module.exit_json(changed=bool(going), removed=going, freed_bytes=sum(sizes.values()))


def main() -> None:
    """Run the module with the arguments from Ansible; exit with its answer, or with a failure."""
    module = make_module_with_states(ARGUMENTS, REQUIRED, OPTIONAL)
    (pack if module.params["state"] == "packed" else list_or_remove)(module)


if __name__ == "__main__":
    main()
