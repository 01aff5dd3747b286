"""Which files of a host are removed and which stay, compared with docs/contracts.md and the roles."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from plugins.module_utils import host_places
from plugins.module_utils.host_places import OWN, HostPlaces, give_to_root, is_our_unit, remove_tree
from plugins.modules.carried_files import CarriedFiles, Wanted
from tests.repository import ROOT
from tests.roles.rendered import files_of, trainer_files
from tests.test_docs import rows, section

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
DIRECTORIES = {
    "install_directory": "opt/psfleet",
    "configuration_directory": "etc/psfleet",
    "state_directory": "var/lib/psfleet",
    "log_directory": "var/log/psfleet",
}
SAMPLES = {
    "<hash>": "0a1b2c3d4e5f",
    "<lock hash>": "5f4e3d2c1b0a",
    "<run id>": "night-1",
    "<job>-<index>": "ps-0",
    "<key>": "0a1b2c3d4e5f",
    "<job><index>": "ps0",
    "<job>": "ps",
    "<letters>": "ab_c1234",
}
# Places that are removed separately, or only on request.
APART = {"psfleet.prom", "data", "carried"}


def places(root: Path, *, runs: bool = False, data: bool = False) -> HostPlaces:
    paths = {name: str(root / path) for name, path in DIRECTORIES.items()}
    return HostPlaces(paths, root / "opt/psfleet/data", runs, data, root, ["/etc/ssh/sshd_config.d"])


def made(root: Path, *names: str) -> None:
    """Make files, or folders where a name ends with a slash."""
    for name in names:
        path = root / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_text(f"{name}\n")


def left(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir() or path.is_symlink()}


def names(root: Path, found: list[Path]) -> set[str]:
    return {str(path.relative_to(root)) for path in found}


def listed_in_contracts() -> set[str]:
    """The paths of docs/contracts.md on a host, and the units' files."""
    text = section("docs/contracts.md", "On a host")
    paths = {path for row in rows(text) for path in re.findall(r"`([^`]+)`", row[0])}
    units = set(re.findall(r"`(psfleet[^`]*\.(?:service|timer|target))`", text))
    files = {re.sub(r"@[^.]*", "@", unit) for unit in units}
    all_of_them = {*paths, *(f"/etc/systemd/system/{file}" for file in files)}
    for sample, name in SAMPLES.items():
        all_of_them = {path.replace(sample, name) for path in all_of_them}
    return {path[1:] for path in all_of_them if path.startswith("/")}


def test_every_place_listed_in_contracts_is_removed(tmp_path: Path) -> None:
    """A place that is added to the table but not removed fails this test."""
    listed = listed_in_contracts()
    assert {"opt/psfleet/environments/5f4e3d2c1b0a/", "etc/systemd/system/psfleet-ps@.service"} <= listed
    assert not [path for path in listed if "<" in path]
    made(tmp_path, *(path for path in listed if not APART & set(Path(path).parts)))
    asked = places(tmp_path, runs=True, data=True)
    asked.removal().remove()
    assert left(tmp_path) == set()
    assert not any("psfleet" in path.name for path in tmp_path.rglob("*"))
    found = asked.removal()
    assert (found.trees, found.empty_folders, found.foreign) == ([], [], [])


def test_every_file_that_a_deployment_writes_is_removed(tmp_path: Path) -> None:
    written = [*trainer_files(), *files_of("ssh_mesh")]
    # The configuration of sshd goes together with its reload.
    ours = [path for path in written if not path.startswith("/etc/ssh/")]
    made(tmp_path, *(path[1:] for path in ours))
    asked = places(tmp_path, runs=True, data=True)
    assert asked.removal().foreign == []
    asked.removal().remove()
    assert left(tmp_path) == set()


def test_every_unit_name_in_the_code_is_recognised_as_psfleets() -> None:
    sources = [path for folder in ("roles", "plugins") for path in (ROOT / folder).rglob("*.*")]
    texts = [path.read_text() for path in sources if path.suffix in {".py", ".yml", ".j2"}]
    texts += trainer_files()
    written = {
        name for text in texts for name in re.findall(r"psfleet[\w@*-]*\.(?:service|timer|target)", text)
    }
    assert {"psfleet.target", "psfleet-tensorboard.service", "psfleet-ps@.service"} <= written
    patterns = {"psfleet-*@*.service", "psfleet-@.service"}  # of several
    assert {name for name in written if not is_our_unit(name)} <= patterns
    assert not is_our_unit("psfleet-backup.service")


def test_files_that_psfleet_did_not_create_are_kept_and_named(tmp_path: Path) -> None:
    others = {
        "opt/psfleet/releases/mine/file",
        "opt/psfleet/data/of-others",
        "opt/psfleet/tools",
        "etc/psfleet/tasks/note.txt",
        "var/log/psfleet/night-1/worker0.out.1.gz",
        "etc/systemd/system/psfleet-backup.service",
        "etc/systemd/system/multi-user.target.wants/psfleet-backup.service",
        "etc/systemd/system/nftables.service.d/mine.conf",
        "var/tmp/psfleet-notes.txt",
    }
    ours = {
        "opt/psfleet/releases/0a1b2c3d4e5f/trainer/__init__.py",
        "opt/psfleet/.current.x1/current",
        "etc/psfleet/tasks/ps-0.env",
        "etc/psfleet/tasks/.ps-0.env.0123",
        "var/log/psfleet/night-1/worker0.out",
        "etc/systemd/system/psfleet-worker@.service.d/fence.conf",
        "etc/systemd/system/psfleet-worker@3.service.d/mine.conf",
        "etc/systemd/system/nftables.service.d/psfleet-fence.conf",
        "var/tmp/psfleet-ab_c1234.tar.gz",
    }
    made(tmp_path, *others, *ours)
    found = places(tmp_path, runs=True, data=True).removal()
    assert names(tmp_path, found.foreign) == {
        "opt/psfleet/releases/mine",
        "opt/psfleet/data/of-others",
        "opt/psfleet/tools",
        "etc/psfleet/tasks/note.txt",
        "var/log/psfleet/night-1/worker0.out.1.gz",
    }
    found.remove()
    assert left(tmp_path) == others


def test_runs_and_data_are_removed_only_on_request_and_records_of_carried_data_stay_until_then(
    tmp_path: Path,
) -> None:
    made(tmp_path, "var/lib/psfleet/runs/night-1/x", "opt/psfleet/carried/tensorboard/x.json", "else/mine")
    target = tmp_path / "else"
    for directory in (tmp_path / "opt/psfleet/data", target):
        carry(directory, tmp_path / "opt/psfleet/carried")
    data = {"opt/psfleet/data/digits", "opt/psfleet/carried/.lock", "else/digits", "else/mine"}
    some = places(tmp_path)
    some.data_directory = target
    some.removal().remove()
    assert left(tmp_path) - records(tmp_path) == {*data, "var/lib/psfleet/runs/night-1/x"}
    assert len(records(tmp_path)) == 2
    assert {record.directory for record in some.carried_records} == {tmp_path / "opt/psfleet/data", target}
    found = some.removal()
    assert not found.trees + found.empty_folders + found.foreign
    asked = places(tmp_path, runs=True, data=True)
    asked.data_directory = target
    assert tmp_path / "opt/psfleet" in asked.removal().outermost
    for record in asked.carried_records:
        record.remove_carried(list(record.files))
    for _ in range(2):
        asked.removal().remove()
    assert left(tmp_path) == {"else/mine"}
    assert not (tmp_path / "opt/psfleet").exists()


def carry(directory: Path, folder: Path) -> None:
    made(directory, "digits")
    host = CarriedFiles(directory, folder, "0", os.getegid())
    manifest = {"digits": Wanted(7, "")}
    host._record("digits", manifest["digits"], (directory / "digits").stat(), carried=True)
    folder.mkdir(parents=True, exist_ok=True)
    host.finish(manifest)
    made(folder, ".lock")


def records(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.glob("opt/psfleet/carried/*.json")}


def test_the_directories_may_be_the_same_or_nested(tmp_path: Path) -> None:
    for nested in (False, True):
        paths = {name: str(tmp_path / "all" / (name if nested else "")) for name in OWN}
        paths["install_directory"] = str(tmp_path / "all")
        whole = HostPlaces(paths, tmp_path / "all/data", removes_runs=True, removes_data=True, root=tmp_path)
        made(Path(paths["install_directory"]), "current", "releases/0a1b2c3d4e5f/x", "data/")
        made(Path(paths["configuration_directory"]), "plan.json")
        made(Path(paths["state_directory"]), "runs/night-1/x")
        made(Path(paths["log_directory"]), "night-1/ps0.out")
        whole.removal().remove()
        assert list(tmp_path.iterdir()) == [], nested


def test_a_linked_directory_on_another_disk_is_emptied_and_kept(tmp_path: Path) -> None:
    made(tmp_path, "disk/0a1b2c3d4e5f/x", "opt/psfleet/")
    (tmp_path / "opt/psfleet/environments").symlink_to(tmp_path / "disk")
    for _ in range(2):
        found = places(tmp_path).removal()
        assert names(tmp_path, found.foreign) == {"opt/psfleet/environments"}
        assert not found.empty_folders
        found.remove()
    assert list((tmp_path / "disk").iterdir()) == []


def test_a_mount_point_is_emptied_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "/proc" in host_places._mounts()
    made(tmp_path, "var/lib/psfleet/runs/night-1/x")
    mounted = tmp_path / "var/lib/psfleet/runs"
    monkeypatch.setattr(host_places, "_mounts", lambda: {str(mounted)})
    for _ in range(2):
        found = places(tmp_path, runs=True).removal()
        assert (found.foreign, found.empty_folders) == ([mounted], [])
        found.remove()
    assert list(mounted.iterdir()) == []


def test_links_at_any_depth_are_not_followed(deep_folder: Path) -> None:
    made(deep_folder, "precious/file", "var/lib/psfleet/runs/night-1/x")
    runs = deep_folder / "var/lib/psfleet/runs"
    (runs / "link").symlink_to(deep_folder / "precious")
    (runs / "night-1/below").symlink_to(deep_folder / "precious")
    # The tree is deeper than Python's recursion limit and the limits of open files and path lengths.
    deeper = "import os\nfor _ in range(1200): os.mkdir('deep'); os.chdir('deep')"
    subprocess.run([sys.executable, "-S", "-c", deeper], cwd=runs, check=True)
    places(deep_folder, runs=True).removal().remove()
    assert left(deep_folder) == {"precious/file"}
    assert not runs.parent.exists()


def test_a_file_that_cannot_be_removed_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^/proc: rm: cannot remove '\./uptime'"):
        remove_tree(Path("/proc/uptime"))
    remove_tree(tmp_path / "nothing")


@as_root
def test_kept_runs_are_given_to_root_and_files_of_other_users_are_not(tmp_path: Path) -> None:
    user, other = 54321, 54322
    made(tmp_path, "runs/night-1/x", "runs/night-1/suid", "alice", "elsewhere")
    runs = tmp_path / "runs"
    (runs / "link").symlink_to(tmp_path / "elsewhere")
    os.link(tmp_path / "alice", runs / "night-1/hard")
    for path in (runs, runs / "night-1", runs / "night-1/x", runs / "night-1/suid", tmp_path / "elsewhere"):
        os.chown(path, user, user)
    os.chown(runs / "link", user, user, follow_symlinks=False)
    os.chown(tmp_path / "alice", other, other)
    (runs / "night-1/suid").chmod(0o6755)
    (runs / "night-1/x").chmod(0o640)
    give_to_root(runs, user)
    owners = {path.name: path.lstat().st_uid for path in [runs, *runs.rglob("*")]}
    assert owners == {"runs": 0, "night-1": 0, "x": 0, "suid": 0, "link": 0, "hard": other}
    assert {path.lstat().st_gid for path in runs.rglob("*")} == {0, other}
    assert (tmp_path / "elsewhere").stat().st_uid == user
    assert (runs / "night-1/suid").stat().st_mode & 0o7777 == 0o755
    assert (runs / "night-1/x").stat().st_mode & 0o7777 == 0o640


def test_the_folder_of_kept_folders_alone_is_no_run(tmp_path: Path) -> None:
    made(tmp_path, "var/lib/psfleet/runs/.tmp/", "var/lib/psfleet/current-worker0")
    some = places(tmp_path)
    assert some.staying_runs is None
    some.removal().remove()
    assert not (tmp_path / "var/lib/psfleet").exists()
    made(tmp_path, "var/lib/psfleet/runs/.tmp/night-1/worker0/logs/x", "var/lib/psfleet/runs/night-1/x")
    some.removal().remove()
    assert left(tmp_path / "var/lib/psfleet/runs") == {".tmp/night-1/worker0/logs/x", "night-1/x"}
