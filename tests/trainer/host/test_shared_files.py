"""trainer/host has what the trainer's processes and Ansible's modules both use, and nothing else."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.repository import ROOT

HOST, UTILS = ROOT / "trainer" / "host", ROOT / "plugins" / "module_utils"
FILES = {path.stem for path in HOST.glob("[!_]*.py")}


def imported(path: Path) -> Iterator[str]:
    """Yield the modules of trainer/host that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            parts = (node.module or "").split(".")
            named = [*parts[-1:], *(alias.name for alias in node.names)]
            of_host = "host" in parts or (path.parent == HOST and node.level == 1)
            yield from (name for name in named if of_host and name in FILES)


def used_by(users: list[Path]) -> set[str]:
    """Return the modules of trainer/host that these files import, and those that these modules import."""
    assert users
    found: set[str] = set()
    names = {name for path in users for name in imported(path)}
    while names - found:
        found |= names
        names = {name for each in found for name in imported(HOST / f"{each}.py")}
    return found


def test_the_trainer_imports_each_file() -> None:
    assert used_by([path for path in (ROOT / "trainer").rglob("*.py") if path.parent != HOST]) == FILES


def test_modules_import_each_file_by_a_link_of_its_own() -> None:
    links = {path.name: path.readlink() for path in (UTILS / "host").iterdir() if path.name != "__pycache__"}
    assert links == {path.name: Path("../../../trainer/host", path.name) for path in HOST.glob("*.py")}
    own = [path for path in UTILS.rglob("*.py") if path.parent != UTILS / "host"]
    assert used_by([*own, *(ROOT / "plugins" / "modules").glob("*.py")]) == FILES
    assert not [path for path in UTILS.rglob("*") if path.is_symlink() and path.is_dir()]
