"""Puts a release of a program on one host, or removes the releases and environments that nothing needs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: content_release
short_description: Puts a release of a program on one host, or removes what nothing needs any more
description:
  - V(state=present) puts a release into a folder that is named by the hash of its content. A release whose files do
    not fit its name is replaced. With O(group), only root and this group may read it. Running tasks keep the release
    with which they were started.
  - V(state=pruned) removes the releases and environments that nothing needs any more; the newest stay.
    The content that this deployment wants gets the present time, which later shows when it was last wanted.
    Other content stays if a link beside its folder, a file of a task's last run, or the command line
    of a process names it.
  - An option of the other state is refused.
  - With V(state=present), the action takes C(source), too, a file or folder on the controller, and carries it
    to hosts that lack the release.
author: psfleet (@psfleet)
options:
  state:
    description: What to do.
    type: str
    choices:
      - present
      - pruned
    default: present
  release:
    description: The release's name, which is the hash of its content. By default it is the hash of C(source).
    type: str
  folder:
    description: The folder of all releases. V(state=present) requires it.
    type: path
  package:
    description: The folder inside the release that has its content; empty if the release itself has it.
    type: str
    default: ''
  link:
    description: A link beside O(folder) that points to the release in use; empty for none.
    type: path
    default: ''
  group:
    description: The only group that may read the releases; empty if everybody may.
    type: str
    default: ''
  archive:
    description:
      - A tar archive on the host of the content, below O(package). The action makes it from C(source).
      - Without it, the module only returns whether it needs one.
    type: path
  wanted:
    description: Names of the releases, programs and environments that this deployment needs. V(state=pruned) requires it.
    type: list
    elements: str
  keep:
    description: How many deployments' content of each kind stays, the present one included. V(state=pruned) requires it.
    type: int
  paths:
    description: The fact V(cluster_paths). V(state=pruned) requires it.
    type: dict
attributes:
  check_mode:
    support: full
    description: It changes nothing, and says what it would change.
"""

EXAMPLES = r"""
- name: Put a program in place
  psfleet.cluster.content_release:
    source: ~/models/train.py
    folder: /opt/psfleet/programs
    group: psfleet

- name: Remove the releases and environments that nothing needs any more
  psfleet.cluster.content_release:
    state: pruned
    wanted: ["{{ cluster_release }}"]
    keep: 2
    paths: "{{ cluster_paths }}"
"""

RETURN = r"""
needs_archive:
  returned: if present
  type: bool
  description: Whether this host lacks the release.
release:
  returned: if present
  type: str
  description: The name of the release.
removed:
  returned: if pruned
  type: list
  description: The removed directories.
  elements: str
freed_bytes:
  returned: if pruned
  type: int
  description: The disk space of the removed directories, in bytes.
"""

import tarfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.content_directory import locked
from ..module_utils.disk_space import freeable_bytes
from ..module_utils.module import make_module_with_states
from ..module_utils.private_files import group_number, make_paths_private
from ..module_utils.releases import Release
from ..module_utils.unneeded_content import (
    KINDS,
    LOCK_TIMEOUT_SECONDS,
    ContentDirectories,
    content_to_remove,
    remove,
)

ARGUMENTS: dict[str, Any] = {
    "state": {"choices": ["present", "pruned"], "default": "present"},
    "release": {},
    "folder": {"type": "path"},
    "package": {"default": ""},
    "link": {"type": "path", "default": ""},
    "group": {"default": ""},
    "archive": {"type": "path"},
    "wanted": {"type": "list", "elements": "str"},
    "keep": {"type": "int"},
    "paths": {"type": "dict"},
}
REQUIRED = {"present": ("release", "folder"), "pruned": ("wanted", "keep", "paths")}
OPTIONAL = {"present": ("package", "link", "group", "archive")}


def put(module: AnsibleModule) -> None:
    """Put the release in place and point its link to it; exit with the answer.

    If the release is neither there nor in an `archive`, change nothing: the answer says `needs_archive`.
    """
    values = module.params
    try:
        group = group_number(values["group"], check_mode=module.check_mode) if values["group"] else None
    except ValueError as error:
        module.fail_json(msg=str(error))
    release = Release(
        folder=Path(values["folder"]),
        name=values["release"],
        package=values["package"],
        link=Path(values["link"]) if values["link"] else None,
        group=group,
    )
    present, current, public = release.is_present(), release.is_current(), release.public_paths()
    needs_archive = not present and not values["archive"]
    difference = {} if present else {"before": "", "after": f"{release.place}\n"}
    if release.link and not current:
        before = release.link.readlink() if release.link.is_symlink() else ""
        difference = {
            "before": f"{release.link} -> {before}\n",
            "after": f"{release.link} -> {release.target}\n",
        }
    try:
        if not needs_archive and not module.check_mode:
            if not present:
                release.unpack(Path(values["archive"]))
            elif group is not None:
                make_paths_private(public, group)
            release.use()
    except (OSError, ValueError, tarfile.TarError) as error:
        module.fail_json(msg=f"release {release.place}: {error}")
    module.exit_json(
        changed=bool(public) or not (present and current),
        needs_archive=needs_archive,
        release=release.name,
        diff=difference,
    )


def prune(module: AnsibleModule) -> None:
    """Remove releases, programs and environments that nothing needs any more, and exit with the answer.

    What is in use, what is in `wanted`, and what the newest `keep` deployments wanted stays. In check mode,
    nothing is removed, and the answer has what would be removed.
    """
    values = module.params
    paths = {name: Path(path) for name, path in values["paths"].items()}
    content = ContentDirectories(paths["install_directory"], paths["configuration_directory"] / "run")
    try:
        with ExitStack() as stack:
            for kind in KINDS if not module.check_mode else ():
                if (content.install_directory / kind).is_dir():
                    lock = content.install_directory / kind / ".lock"
                    stack.enter_context(locked(lock, LOCK_TIMEOUT_SECONDS))
            unneeded = content_to_remove(content.stored(), values["wanted"], values["keep"])
            going = [content.install_directory / each.kind / each.name for each in unneeded]
            freed = freeable_bytes(*going)
            if not module.check_mode:
                content.mark_wanted(values["wanted"])
                for path in going:
                    remove(path)
    except (OSError, ValueError) as error:
        module.fail_json(msg=f"Unneeded content could not be removed: {error}")
    removed = [str(path) for path in going]
    before = "".join(f"{path}\n" for path in removed)
    module.exit_json(
        changed=bool(going), removed=removed, freed_bytes=freed, diff={"before": before, "after": ""}
    )


def main() -> None:
    """Run the module with the arguments from Ansible; exit with its answer, or with a failure."""
    module = make_module_with_states(ARGUMENTS, REQUIRED, OPTIONAL)
    (put if module.params["state"] == "present" else prune)(module)


if __name__ == "__main__":
    main()
