import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from plugins.module_utils import unneeded_content
from plugins.module_utils.content_directory import locked
from plugins.module_utils.disk_space import freeable_bytes
from plugins.module_utils.unneeded_content import (
    PARTIAL,
    StoredContent,
    content_to_remove,
    settled_names,
)
from plugins.modules import content_release
from tests.plugins.modules.module_run import fact_of, module_answer

A, B, C, D, E = (letter * 12 for letter in "abcde")


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host with four of each kind, the later the later in the alphabet; the last is in use."""
    install = tmp_path / "opt"
    (tmp_path / "etc/run").mkdir(parents=True)
    for kind in unneeded_content.KINDS:
        for number, name in enumerate((A, B, C, D)):
            (install / kind / name / "bin").mkdir(parents=True)
            (install / kind / name / "bin" / "python").write_bytes(b"x" * 10_000)
            os.utime(install / kind / name, (number, number))
    (install / "current").symlink_to(f"releases/{D}")
    return tmp_path


def asked(host: Path, *wanted: str, keep: int = 2, check: bool = False) -> dict[str, Any]:
    paths = {"install_directory": str(host / "opt"), "configuration_directory": str(host / "etc")}
    asked = {"state": "pruned", "wanted": list(wanted or [D]), "keep": keep, "paths": paths}
    return module_answer(content_release, check=check, **asked)


def stored(found: dict[str, int]) -> list[StoredContent]:
    """Return releases that nothing uses; `found` is {name: when a deployment last wanted it}."""
    return [StoredContent("releases", name, moment, in_use=False) for name, moment in found.items()]


def names(content: list[StoredContent]) -> list[str]:
    return [each.name for each in content]


def left(host: Path, kind: str) -> set[str]:
    return {path.name for path in (host / "opt" / kind).iterdir()} - {".lock"}


def test_the_last_two_of_each_kind_are_kept_and_a_second_call_removes_nothing(host: Path) -> None:
    answer = asked(host)
    going = [str(host / "opt" / kind / name) for kind in unneeded_content.KINDS for name in (A, B)]
    assert (answer["changed"], answer["removed"]) == (True, going)
    assert answer["diff"]["before"].split() == going
    # Two directories and a file each.
    assert answer["freed_bytes"] >= 6 * 10_000
    assert [left(host, kind) for kind in unneeded_content.KINDS] == [{C, D}] * 3
    again = asked(host)
    assert (again["changed"], again["removed"], again["freed_bytes"]) == (False, [], 0)


def test_check_mode_lists_what_would_be_removed_and_changes_nothing(host: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in host.rglob("*")}
    said = asked(host, E, check=True)  # which a deployment would put there
    assert {path: path.stat().st_mtime_ns for path in host.rglob("*")} == before
    assert {path.rpartition("/")[2] for path in said["removed"]} == {A, B, C}


def test_the_age_of_content_counts_from_its_last_deployment(host: Path) -> None:
    asked(host, A, keep=9)  # back to an older one
    asked(host, C, keep=9)
    assert {path.rpartition("/")[2] for path in asked(host, C)["removed"]} == {B, D}
    assert left(host, "programs") == {A, C}
    assert left(host, "releases") == {A, C, D}, "a link names the last"


def test_content_of_one_deployment_is_kept_or_removed_together() -> None:
    found = stored({A: 1, B: 2, C: 2, D: 3})
    assert names(content_to_remove(found, [D], 2)) == [A]
    assert names(content_to_remove(found, [D], 1)) == [A, B, C]
    assert names(content_to_remove(found, [B], 2)) == [A, C]
    assert content_to_remove(found, [], 9) == []


@pytest.mark.parametrize(
    ("found", "settled"),
    [
        ({A: 1, B: 2}, [B]),
        ({B: 2, A: 2}, [A, B]),
        ({A: 1, B: 2, C: 3}, []),  # A is to be removed
        ({f"{PARTIAL}{A}": 1, B: 2}, []),
        ({}, []),
    ],
)
def test_content_is_settled_once_there_is_nothing_to_remove(
    found: dict[str, int], settled: list[str]
) -> None:
    assert settled_names(stored(found), 2) == settled


def test_content_that_only_a_run_needs_is_settled() -> None:
    assert settled_names([StoredContent("releases", A, 1, in_use=True), *stored({B: 2, C: 3})], 2) == [C]


def test_a_deployment_leaves_settled_content(host: Path) -> None:
    asked(host, C)
    paths: dict[str, Any] = {"install_directory": str(host / "opt"), "run_directory": str(host / "etc/run")}
    assert fact_of("content", group="root", **paths)["settled"] == [C]
    assert left(host, "programs") == {C, D}
    assert fact_of("content", group="root", keep=1, **paths)["settled"] == []


@pytest.mark.parametrize("run_file", ["program.json", "worker-0.json"])
def test_content_named_by_a_run_a_link_or_a_command_line_is_kept(host: Path, run_file: str) -> None:
    (host / "etc/run/worker-0.env").write_text(f'PSFLEET_CODE="/opt/psfleet/releases/{A}"\n')
    # Any file of a run may name what the run needs, such as a model.
    (host / f"etc/run/{run_file}").write_text(f'{{"release": "{B}"}}')
    (host / "opt/tensorboard").symlink_to(f"environments/{A}")
    python = host / "opt/environments" / B / "bin/python"
    python.unlink()
    python.symlink_to(sys.executable)
    with subprocess.Popen([python, "-c", "input()"], stdin=subprocess.PIPE):
        asked(host)
        assert left(host, "releases") == {A, B, C, D}, "in what kind a run needs it does not matter"
        assert left(host, "programs") == {A, B, C, D}
        assert left(host, "environments") == {A, B, C, D}
        (host / "etc/run/worker-0.env").unlink()
        (host / f"etc/run/{run_file}").unlink()
        asked(host)
        assert [left(host, kind) for kind in unneeded_content.KINDS] == [{C, D}, {C, D}, {A, B, C, D}]
    asked(host)
    assert [left(host, kind) for kind in unneeded_content.KINDS] == [{C, D}, {C, D}, {A, C, D}]


def test_other_files_are_kept_and_no_link_is_followed(host: Path) -> None:
    elsewhere = host / "elsewhere"
    (elsewhere / "bin").mkdir(parents=True)
    for place in ("notes", ".lock", "A" * 12, "a" * 13, ".partial-theirs"):
        (host / "opt/releases" / place).mkdir()
    (host / "opt/releases" / A / "leads_out").symlink_to(elsewhere)
    (host / "opt/releases" / ("0" * 12)).symlink_to(elsewhere)
    (host / "opt/releases/.lock").rmdir()
    os.utime(host / "opt/releases" / ("0" * 12), (0, 0), follow_symlinks=False)
    if os.geteuid() == 0:
        os.chown(host / "opt/programs" / A, 1000, 1000)
    asked(host)
    assert left(host, "releases") >= {"notes", "A" * 12, "a" * 13, ".partial-theirs", "0" * 12}
    assert (elsewhere / "bin").is_dir()
    if os.geteuid() == 0:
        assert left(host, "programs") == {A, C, D}


def test_a_folder_that_others_can_write_is_refused(host: Path) -> None:
    (host / "opt/programs").chmod(0o777)
    assert "programs can be changed by others than root" in asked(host)["msg"]
    assert left(host, "programs") == {A, B, C, D}


def test_an_interrupted_removal_leaves_no_partial_release_and_is_finished(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(path: Path) -> None:
        raise OSError(5, "interrupted", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(unneeded_content, "remove_tree", interrupted)
        assert "interrupted" in asked(host)["msg"]
    assert left(host, "releases") == {f".partial-{A}", B, C, D}
    assert asked(host)["changed"]
    assert left(host, "releases") == {C, D}


def test_disk_space_shared_with_another_environment_does_not_count_as_freed(host: Path) -> None:
    environments = host / "opt/environments"
    for name in (A, B):
        (environments / name / "bin/python").unlink()
    os.link(environments / D / "bin/python", environments / A / "bin/python")
    alone = [environments / A, environments / B]
    shared = freeable_bytes(*alone)
    assert shared < 10_000 + 4 * 4096
    (environments / D / "bin/python").unlink()
    freed = freeable_bytes(*alone)
    assert freed - shared >= 10_000


def test_a_lock_held_by_an_installation_is_waited_for_and_reported(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content_release, "LOCK_TIMEOUT_SECONDS", 0)
    with locked(host / "opt/environments/.lock", 0):
        assert "has been locked" in asked(host)["msg"]
        assert asked(host, check=True)["changed"]
    assert left(host, "releases") == {A, B, C, D}


def test_a_bare_host_has_nothing_to_remove(tmp_path: Path) -> None:
    assert asked(tmp_path)["changed"] is False
