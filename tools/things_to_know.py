"""Counts the things that a developer of psfleet has to know, and compares them with bounds.

Lines have no bound: code should be as long as it is plain. What costs is each name that people have to learn.
If you remove a name, lower the bound.
"""

import ast
import inspect
import re
from collections.abc import Mapping
from pathlib import Path

from ansible.plugins.action import ActionBase
from ansible.plugins.callback import CallbackBase

# Kind -> the greatest permitted number.
MOST = {
    "modules that Ansible ships": 12,
    "actions": 17,
    "filters": 17,
    "lookups": 1,
    "roles": 14,
    # Each playbook is a command of its own that a person types; the newest is export.yml.
    "playbooks": 16,
    # The newest, cluster_systems, has what the YAML files say about each operating system.
    "variables cluster_*": 13,
    # AnsibleModule._diff, which modules read to know whether to show differences, as Ansible's guide says;
    # HostVars._inventory, because no variable has the child groups of a group; and the tag Origin, with which
    # a message names the file and line of a variable.
    "private names of Ansible": 3,
    "words of the glossary": 24,
}
# These belong to Python: os._exit, and methods of named tuples.
OF_PYTHON = {"_exit", "_fields", "_replace", "_asdict"}


def known_names(root: Path) -> dict[str, set[str]]:
    """Return {kind: names of this kind} in the working copy `root`; the kinds are the keys of MOST."""
    plugins = root / "plugins"
    in_roles = text(root, "roles/**/*.yml", "playbooks/*.yml")
    filters = ast.parse((plugins / "filter" / "filters.py").read_text(encoding="utf-8"))
    lists = [
        node.value
        for node in filters.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple | ast.List)
    ]
    return {
        # The other files have only the documentation of an action.
        "modules that Ansible ships": {
            name
            for name in names(plugins / "modules")
            if "\ndef main(" in text(plugins, f"modules/{name}.py")
        },
        "actions": names(plugins / "action"),
        "filters": {ast.unparse(each) for found in lists for each in found.elts},
        "lookups": names(plugins / "lookup"),
        "roles": {path.name for path in (root / "roles").iterdir() if path.is_dir()},
        "playbooks": names(root / "playbooks", "*.yml"),
        "variables cluster_*": set(re.findall(r"\bcluster_[a-z]+", in_roles)),
        "private names of Ansible": private_names(root),
        "words of the glossary": glossary((root / "docs" / "architecture.md").read_text(encoding="utf-8")),
    }


def names(folder: Path, pattern: str = "*.py") -> set[str]:
    """Return the names of the files in `folder` that match the pattern, without suffixes.

    `__init__` is left out.
    """
    return {path.stem for path in folder.glob(pattern)} - {"__init__"}


def text(root: Path, *patterns: str) -> str:
    """Return the text of all files below `root` that match a pattern, joined by line ends."""
    paths = (path for pattern in patterns for path in root.glob(pattern))
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def private_names(root: Path) -> set[str]:
    """Return the private names of Ansible that code uses: attributes ("_inventory"), and full module names.

    All code that may import Ansible is searched. A plugin is a subclass, to which Ansible's base classes
    offer their methods and attributes: on `self` these are not private. What the same room defines is not
    Ansible's. `trainer/` must not import Ansible.
    """
    rooms = [root / "plugins", *(path for path in (root / "psfleet").glob("*") if path.is_dir())]
    return {name for room in rooms for name in _private_names_in(text(room, "**/*.py"))}


def _private_names_in(code: str) -> set[str]:
    nodes = [*ast.walk(ast.parse(code))]
    imported = {
        f"{node.module}.{name.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    imported |= {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    attributes = [node for node in attributes if re.fullmatch(r"_[a-z]\w*", node.attr)]
    own = {node for node in attributes if ast.unparse(node.value) in {"self", "cls", "super()"}}
    offers = offered_names(ActionBase) | offered_names(CallbackBase)
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    defined |= {node.attr for node in own if isinstance(node.ctx, ast.Store)}
    defined |= {
        node.target.id
        for node in nodes
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    used = {node.attr for node in own} - defined - offers
    used |= {node.attr for node in {*attributes} - own} - (defined - offers)
    return {name for name in imported if re.match(r"ansible\.(\w+\.)*_", name)} | (used - OF_PYTHON)


def offered_names(base: type[object]) -> set[str]:
    """Return the names of a class's methods and attributes, and of the attributes that it sets on `self`."""
    stored = re.findall(r"self\.(\w+)(?:: [^=\n]+)? = ", inspect.getsource(base))
    return {*vars(base), *stored}


def glossary(page: str) -> set[str]:
    """Return the words in the first column of the glossary; `page` is the text of docs/architecture.md."""
    part = page.partition("## Glossary\n")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| (?!word|---)([^|]+) \|", part, re.MULTILINE)) - {"word"}


def excess(found: Mapping[str, set[str]]) -> list[str]:
    """Return a sentence for each kind with more names than MOST permits; [] if there is none.

    `found` is what `known_names` returned.
    """
    return [
        f"{len(found[kind])} {kind}; at most {most} are allowed: remove one, or say in MOST why it must "
        "allow more"
        for kind, most in MOST.items()
        if len(found[kind]) > most
    ]
