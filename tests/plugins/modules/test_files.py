import os
import pwd
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plugins.modules import files as files_module
from plugins.modules.files import acting_as
from tests.plugins.modules.module_run import module_answer

NOBODY = pwd.getpwnam("nobody")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can take another user's rights")


@pytest.fixture
def open_path() -> Iterator[Path]:
    """Return a folder that others may enter; pytest's own are closed to them."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def manage(*files: dict[str, Any], check: bool = False, **others: Any) -> dict[str, Any]:  # noqa: ANN401
    return module_answer(files_module, check=check, files=list(files), **others)


def test_changes_listed_in_check_mode_are_made_once(tmp_path: Path) -> None:
    folder, file, old = tmp_path / "d", tmp_path / "d" / "f", tmp_path / "old.env"
    old.write_text("gone\n")
    wanted: dict[str, Any] = {
        "directories": [{"path": str(folder)}],
        "only": [f"{tmp_path}/*.env"],
    }
    described = {"dest": str(file), "content": "x\n", "mode": "0600"}
    answers = [manage(described, check=check, **wanted) for check in (True, False, False)]
    me = pwd.getpwuid(os.geteuid()).pw_name
    assert answers[0] == answers[1]
    assert answers[1]["changed"]
    assert answers[1]["changed_paths"] == [str(folder), str(file)]
    assert answers[1]["removed_paths"] == [str(old)]
    assert answers[1]["diff"] == [
        {
            "before_header": str(folder),
            "before": "",
            "after_header": f"{folder} ({me}:{me} 0755)",
            "after": f"{me}:{me} 0755",
        },
        {
            "before_header": str(file),
            "before": "",
            "after_header": f"{file} ({me}:{me} 0600)",
            "after": "x\n",
        },
        {"before_header": str(old), "before": "gone\n", "after": ""},
    ]
    assert [answers[2][name] for name in ("changed", "changed_paths", "removed_paths")] == [False, [], []]
    assert [path.stat().st_mode & 0o777 for path in (folder, file)] == [0o755, 0o600]
    assert [path.name for path in folder.iterdir()] == ["f"]


def test_binary_content_is_written_unchanged(tmp_path: Path) -> None:
    wanted = {"dest": str(tmp_path / "f"), "content": "AP8K", "encoding": "base64"}
    assert [manage(wanted)["changed"] for _ in range(2)] == [True, False]
    assert (tmp_path / "f").read_bytes() == b"\0\xff\n"


@pytest.mark.parametrize(
    "spoil", ["content", "mode", "link", "dangling link", pytest.param("owner", marks=as_root)]
)
def test_a_file_that_somebody_changed_is_restored(tmp_path: Path, spoil: str) -> None:
    path = tmp_path / "f"
    wanted = {"dest": str(path), "content": "x\n"}
    manage(wanted)
    if spoil == "content":
        path.write_text("y\n")
    elif spoil == "mode":
        path.chmod(0o4644)
    elif spoil == "owner":
        os.chown(path, NOBODY.pw_uid, -1)
    else:
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    if spoil == "dangling link":
        (tmp_path / "elsewhere").unlink()
    answer = manage(wanted)
    assert answer["changed_paths"] == [str(path)]
    before = {"content": "y\n", "link": "", "dangling link": ""}.get(spoil, "x\n")
    assert answer["diff"][0]["before"] == before
    assert not manage(wanted)["changed"]
    assert not path.is_symlink()


@as_root
@pytest.mark.parametrize("spoil", ["mode", "owner", "group"])
def test_a_directorys_owner_and_mode_are_restored_and_its_content_is_kept(tmp_path: Path, spoil: str) -> None:
    folder = tmp_path / "d"
    wanted = [{"path": str(folder), "owner": "nobody", "group": "daemon", "mode": "0750"}]
    manage(directories=wanted)
    (folder / "theirs").write_text("x")
    right = folder.stat()
    if spoil == "mode":
        folder.chmod(0o777)
    else:
        os.chown(folder, *((0, -1) if spoil == "owner" else (-1, 0)))
    before = folder.stat()
    (difference,) = manage(directories=wanted)["diff"]
    assert difference["before"] == f"{before.st_uid}:{before.st_gid} {before.st_mode & 0o7777:04o}"
    found = folder.stat()
    assert (found.st_mode, found.st_uid, found.st_gid) == (right.st_mode, right.st_uid, right.st_gid)
    assert pwd.getpwuid(found.st_uid).pw_name == "nobody"
    assert (folder / "theirs").read_text() == "x"


@pytest.mark.parametrize("kind", ["file", "link", "dangling link"])
def test_a_file_or_link_in_place_of_a_directory_is_refused_and_kept(tmp_path: Path, kind: str) -> None:
    (tmp_path / "precious").mkdir(mode=0o700)
    place = tmp_path / "d"
    if kind == "file":
        place.write_text("x")
    else:
        place.symlink_to(tmp_path / ("precious" if kind == "link" else "nothing"))
    before = place.lstat()
    answer = manage(directories=[{"path": str(place), "mode": "0777"}])
    assert answer["failed"]
    assert answer["msg"] == f"{place} is not a directory; move it away"
    assert place.lstat() == before
    assert (tmp_path / "precious").stat().st_mode & 0o777 == 0o700


def test_a_file_is_validated_together_with_the_others_before_any_is_written(tmp_path: Path) -> None:
    first = {
        "dest": f"{tmp_path}/a",
        "content": f"{tmp_path}/bb\n",
        "validate": "sh -c 'cat $(cat $0)' %s",
    }
    answer = manage({"dest": f"{tmp_path}/0", "content": ""}, first)
    assert answer["msg"].startswith(f"Nothing was written. {tmp_path}/a: sh -c cat $(cat $0) %s: ")
    assert f"cat: {tmp_path}/bb: No such file" in answer["msg"]
    assert list(tmp_path.iterdir()) == []
    other = {"dest": f"{tmp_path}/bb", "content": "b\n"}
    assert manage({"dest": f"{tmp_path}/b", "content": ""}, other, first)["changed"]
    # It is validated again only if a file changes, and then together with the unchanged files.
    failing = first | {"validate": "false"}
    assert not manage(failing, other)["changed"]
    assert "exit code 1" in manage(failing, other | {"content": "c\n"})["msg"]
    assert (tmp_path / "bb").read_text() == "b\n"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo $0: Unknown key >&2", " %s: {path}: Unknown key"),  # as of systemd-analyze, which exits 0
        ("echo on its standard output; exit 3", "on its standard output"),
        ("exit 3", "exit code 3"),
        ("echo of another file >&2; exit 3", "of another file"),
        ("echo /lib/systemd/system/other.service:3: Unknown key >&2", ""),
    ],
)
def test_a_failed_validator_or_a_message_about_the_file_is_an_objection(
    tmp_path: Path, script: str, words: str
) -> None:
    answer = manage({"dest": f"{tmp_path}/a", "content": "", "validate": f"sh -c {shlex.quote(script)} %s"})
    assert words.format(path=tmp_path / "a") in answer.get("msg", "")
    assert ("failed" in answer) == bool(words) != (tmp_path / "a").exists()


def test_only_matching_files_that_are_neither_listed_nor_kept_are_removed(tmp_path: Path) -> None:
    for name in ("ps-0.env", "ps-1.env", "ps-2.env", "notes.txt"):
        (tmp_path / name).write_text("")
    (tmp_path / "folder.env").mkdir()
    (tmp_path / "link.env").symlink_to(tmp_path / "folder.env")
    named = {"dest": f"{tmp_path}/ps-0.env", "content": ""}
    answer = manage(named, only=[f"{tmp_path}/*.env"], kept=[f"{tmp_path}/ps-1.env"])
    assert answer["removed_paths"] == [f"{tmp_path}/link.env", f"{tmp_path}/ps-2.env"]
    left = ["folder.env", "notes.txt", "ps-0.env", "ps-1.env"]
    assert sorted(path.name for path in tmp_path.iterdir()) == left


def test_the_directory_of_a_drop_in_is_created_and_removed_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "psfleet-worker@0.service.d"
    only = [f"{tmp_path}/*.d/gpu.conf", f"{tmp_path}/plain/*"]
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "x").write_text("")
    assert manage({"dest": f"{folder}/gpu.conf", "content": "[Service]\n"}, only=only)["changed"]
    (folder / "theirs.conf").write_text("")
    manage(only=only)
    assert [path.name for path in folder.iterdir()] == ["theirs.conf"]
    (folder / "theirs.conf").rename(folder / "gpu.conf")
    assert manage(only=only)["changed"]
    assert [path.name for path in tmp_path.iterdir()] == ["plain"]
    assert "No such file" in manage({"dest": f"{tmp_path}/lacks/x", "content": ""})["msg"]


@as_root
def test_a_file_of_another_user_is_written_with_that_users_rights(open_path: Path) -> None:
    groups = os.getgroups()
    secret, theirs, own = open_path / "root", open_path / "theirs", open_path / "own"
    secret.mkdir()
    secret.chmod(0o770)
    own.mkdir()
    os.chown(own, NOBODY.pw_uid, -1)
    theirs.symlink_to(secret)
    wanted = {"content": "x\n", "owner": "nobody", "group": "nogroup", "mode": "0640"}
    assert "Permission denied" in manage({"dest": f"{theirs}/config", **wanted})["msg"]
    assert list(secret.iterdir()) == []
    assert manage({"dest": f"{own}/config", **wanted})["changed"]
    found = (own / "config").stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (NOBODY.pw_uid, NOBODY.pw_gid, 0o640)
    manage({"dest": f"{own}/of_root", "content": "", "group": "daemon"})
    assert ((own / "of_root").owner(), (own / "of_root").group()) == ("root", "daemon")
    with acting_as((NOBODY.pw_uid, NOBODY.pw_gid)):
        assert (os.geteuid(), os.getegid(), os.getgroups()) == (NOBODY.pw_uid, NOBODY.pw_gid, [NOBODY.pw_gid])
    assert (os.geteuid(), os.getegid(), os.getgroups()) == (0, 0, groups)


def test_a_fifo_in_place_of_a_file_is_replaced_without_being_read(tmp_path: Path) -> None:
    path = tmp_path / "f"
    os.mkfifo(path, 0o644)
    # A process has the FIFO open, and has written into it, so that a reader would not block for ever.
    holds = 'exec 3<>"$0"; echo read >&3; echo ready; sleep 20'
    with subprocess.Popen(["sh", "-c", holds, path], process_group=0, stdout=subprocess.PIPE) as writer:
        assert writer.stdout and writer.stdout.readline() == b"ready\n"
        answer = manage({"dest": str(path), "content": "x\n"})
        os.killpg(writer.pid, signal.SIGKILL)
    assert answer["diff"][0]["before"] == ""
    assert path.read_text() == "x\n"


@pytest.fixture
def theirs(open_path: Path) -> Path:
    """Return a directory of the tasks' user, beside a secret of root."""
    (open_path / "secrets").mkdir()
    (open_path / "secrets" / "shadow").write_text("root's own\n")
    (open_path / "secrets" / "shadow").chmod(0o600)
    own = open_path / "own"
    own.mkdir()
    os.chown(own, NOBODY.pw_uid, NOBODY.pw_gid)
    return own


@as_root
@pytest.mark.parametrize("link", ["symbolic", "hard"])
def test_a_secret_linked_in_place_of_a_file_is_not_shown(theirs: Path, link: str) -> None:
    secret, config = theirs.parent / "secrets" / "shadow", theirs / "config"
    if link == "hard":
        os.link(secret, config)
    else:
        config.symlink_to(secret)
    answer = manage({"dest": str(config), "content": "x\n", "owner": "nobody", "group": "nogroup"})
    assert answer["diff"][0]["before"] == ""
    assert (secret.read_text(), secret.stat().st_uid) == ("root's own\n", 0)
    assert config.read_text() == "x\n"


@as_root
def test_a_directory_of_root_in_place_of_a_users_directory_is_refused(theirs: Path) -> None:
    wanted = {"path": str(theirs / "runs"), "owner": "nobody", "group": "nogroup", "mode": "0750"}
    (theirs / "keys").mkdir(mode=0o700)
    (theirs / "keys").rename(theirs / "runs")  # as they can
    assert manage(directories=[wanted])["msg"] == f"{theirs}/runs does not belong to nobody; move it away"
    assert (theirs / "runs").stat().st_uid == 0
    (theirs / "runs").rmdir()
    assert manage(directories=[wanted])["changed"]
    found = (theirs / "runs").stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (NOBODY.pw_uid, NOBODY.pw_gid, 0o750)


@as_root
def test_a_link_within_a_path_is_not_followed(theirs: Path) -> None:
    secrets = theirs.parent / "secrets"
    (theirs / "led").symlink_to(secrets)
    wanted = {"path": str(theirs / "led" / "deep"), "owner": "nobody", "group": "nogroup"}
    refused = f"led in {theirs}/led is not a directory, or a link that is not root's"
    assert manage(directories=[wanted])["msg"] == refused
    assert manage({"dest": f"{theirs}/led/shadow", "content": ""})["msg"] == refused
    for pattern in (f"{theirs}/led/*", f"{theirs}/*/shadow"):
        answer = manage(only=[pattern])
        assert answer.get("msg", refused) == refused
        assert not answer.get("removed_paths")
    assert [path.name for path in secrets.iterdir()] == ["shadow"]


@as_root
def test_a_failed_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "theirs").write_text("")
    assert "Is a directory" in manage({"dest": f"{tmp_path}/f", "content": "x"})["msg"]
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"dest": "/x"}, "one of the following is required: src, content"),
        ({"dest": "/x", "content": "", "mod": "0600"}, "files.mod"),
        (
            {"dest": "/x", "content": "", "owner": "nobody-here"},
            "/x: this host has no user nobody-here or no",
        ),
    ],
)
def test_a_wrong_description_is_refused(values: dict[str, Any], message: str) -> None:
    assert message in manage(values)["msg"]


def test_check_mode_succeeds_before_the_owner_exists(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    answer = manage({"dest": f"{tmp_path}/f", "content": "", "owner": "nobody-here"}, check=True)
    assert answer["changed"]
    assert "nobody-here:nobody-here 0644" in answer["diff"][0]["after_header"]
