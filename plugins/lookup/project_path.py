"""Finds the folder on the controller for what people keep: their runs, and the authority of their hosts."""

DOCUMENTATION = r"""
name: project_path
short_description: Return the paths of files of the project on the controller
description:
  - The files are beside the C(ansible.cfg) in use. If that is the user's own or the system's, they are in the
    clone that contains this collection; without a clone, they are in the folder in which Ansible was started.
  - They are never inside an installed collection, because the next version replaces the collection.
options:
  _terms: {type: list, elements: str, required: true, description: "Paths in the project, such as C(runs)."}
  of_inventory:
    type: bool
    default: false
    description: Whether to add a folder for this inventory, named by its name and a hash of its path.
"""

EXAMPLES = r"""
training_run_runs_directory: "{{ lookup('psfleet.cluster.project_path', 'runs') }}"
"""

RETURN = r"""
_raw: {type: list, elements: str, description: The path on the controller of each term.}
"""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.plugins.lookup import LookupBase

COLLECTION = Path(__file__).resolve().parents[2]


class LookupModule(LookupBase):
    """The lookup `project_path`; Ansible loads the class with this name."""

    def run(self, terms: list[str], variables: Any = None, **options: Any) -> list[str]:  # noqa: ANN401
        """Return an absolute path in the project for each term, in the order of the terms.

        With the option `of_inventory`, a folder for the inventory is added to each path.
        """
        used = constants.CONFIG_FILE
        personal = {None, str(Path("~/.ansible.cfg").expanduser()), "/etc/ansible/ansible.cfg"}
        # In a clone, `collections` is a link to the clone itself; an installed collection has none
        # (galaxy.yml).
        clone = COLLECTION if (COLLECTION / "collections").is_dir() else Path.cwd()
        project = clone if used in personal else Path(used).parent
        own = _inventory_folder(variables["ansible_inventory_sources"]) if options.get("of_inventory") else ""
        return [str(project / term / own) for term in terms]


def _inventory_folder(sources: Sequence[str]) -> str:
    paths = "\n".join(str(Path(source).resolve()) for source in sources)
    return f"{Path(sources[0]).resolve().stem}-{sha256(paths.encode()).hexdigest()[:8]}"
