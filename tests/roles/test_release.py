"""The release that roles/trainer ships: every byte of trainer/, and of nothing else."""

import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

from plugins.action.content_release import pack
from plugins.module_utils.content_directory import content_hash
from tests.repository import ROOT

OTHERS = ("psfleet", "plugins", "roles", "docs")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files that git has, which a test may change."""
    folder = tmp_path_factory.mktemp("clone")
    for name in tracked("trainer", *OTHERS):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    return folder


def tracked(*folders: str) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    return [name for name in listed if name and (ROOT / name).exists()]


def shipped(clone: Path) -> tuple[str, dict[str, bytes]]:
    """Return the hash of the release that is packed from a clone, and its files."""
    tasks = yaml.safe_load((ROOT / "roles/trainer/tasks/main.yml").read_text())
    arguments = tasks[0]["psfleet.cluster.content_release"]
    role = clone / "roles" / "trainer"
    source = Path(arguments["source"].replace("{{ role_path }}", str(role))).resolve()
    archive = clone.parent / "release.tar"
    pack(source, archive, arguments["package"])
    with tarfile.open(archive) as stream:
        files = {name: stream.extractfile(name) for name in stream.getnames()}
        return content_hash(source), {name: file.read() for name, file in files.items() if file}


def test_a_release_contains_exactly_the_tracked_files_of_trainer(clone: Path) -> None:
    _, files = shipped(clone)
    assert files == {name: (ROOT / name).read_bytes() for name in tracked("trainer")}


def test_only_a_change_in_trainer_makes_another_release(clone: Path) -> None:
    before = shipped(clone)
    for folder in OTHERS:
        for file in [*(clone / folder).rglob("*.py"), *(clone / folder).rglob("*.md")]:
            if not file.is_symlink():  # the links to files of trainer/host
                file.write_text("changed\n", encoding="utf-8")
    (clone / "psfleet/another.py").write_text("more\n", encoding="utf-8")
    assert (clone / "plugins/module_utils/network/fence_rules.py").read_text() == "changed\n"
    assert shipped(clone) == before
    for name in ("trainer/contract/exit_codes.py", "trainer/another.py"):
        with (clone / name).open("a", encoding="utf-8") as changed:
            changed.write("\n")
        name_of_release, _ = shipped(clone)
        assert name_of_release != before[0]
        before = (name_of_release, {})
