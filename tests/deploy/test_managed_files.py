import getpass
import os
from pathlib import Path
from typing import Any

import pytest

from plugins.modules.managed_files import acting_as, apply, extra_paths, parse, validate_files

ME = getpass.getuser()
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can take another user's rights")


def described(files: list[dict[str, Any]], directories: list[dict[str, Any]] | None = None) -> Any:  # noqa: ANN401
    return parse({"files": files, "directories": directories or []})


def test_a_second_run_finds_everything_as_it_wants_it(tmp_path: Path) -> None:
    directories, files = described(
        [{"path": f"{tmp_path}/d/f", "content": "x\n", "mode": "0600"}],
        [{"path": f"{tmp_path}/d", "mode": "0750"}],
    )
    assert not any(entry.is_fulfilled() for entry in [*directories, *files])
    apply(directories, files, [])
    assert all(entry.is_fulfilled() for entry in [*directories, *files])
    assert (tmp_path / "d" / "f").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in (tmp_path / "d").iterdir()] == ["f"]


@pytest.mark.parametrize("spoil", ["content", "mode", "link"])
def test_what_somebody_changed_is_noticed_and_mended(tmp_path: Path, spoil: str) -> None:
    path = tmp_path / "f"
    directories, files = described([{"path": str(path), "content": "x\n"}])
    apply(directories, files, [])
    if spoil == "content":
        path.write_text("y\n")
    elif spoil == "mode":
        path.chmod(0o666)
    else:
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    assert not files[0].is_fulfilled()
    apply(directories, files, [])
    assert files[0].is_fulfilled()
    assert not path.is_symlink()


def test_a_file_is_validated_before_it_is_written_and_sees_the_others(tmp_path: Path) -> None:
    _, files = described(
        [
            {
                "path": f"{tmp_path}/a",
                "content": f"{tmp_path}/b\n",
                "validate": ["sh", "-c", "cat $(cat $0)", "%s"],
            },
            {"path": f"{tmp_path}/b", "content": "b\n"},
        ]
    )
    assert validate_files(files) == []
    problems = validate_files(files[:1])
    assert len(problems) == 1
    assert f"{tmp_path}/a" in problems[0]
    assert "No such file" in problems[0]
    assert list(tmp_path.iterdir()) == []


def test_a_warning_of_somebody_elses_file_is_no_objection(tmp_path: Path) -> None:
    validate = ["sh", "-c", "echo /lib/systemd/system/other.service:3: Unknown key >&2"]
    _, files = described([{"path": f"{tmp_path}/a", "content": "", "validate": validate}])
    assert validate_files(files) == []


def test_a_validator_that_only_warns_is_an_objection(tmp_path: Path) -> None:
    _, files = described(
        [{"path": f"{tmp_path}/a", "content": "", "validate": ["sh", "-c", "echo $0: Unknown key >&2", "%s"]}]
    )
    assert "Unknown key" in validate_files(files)[0]


def test_only_what_matches_and_is_not_named_or_kept_goes(tmp_path: Path) -> None:
    for name in ("ps-0.env", "ps-1.env", "ps-2.env", "notes.txt"):
        (tmp_path / name).write_text("")
    _, files = described([{"path": f"{tmp_path}/ps-0.env", "content": ""}])
    assert extra_paths(files, [f"{tmp_path}/*.env"], [f"{tmp_path}/ps-1.env"]) == [tmp_path / "ps-2.env"]


def test_the_directory_of_a_drop_in_comes_and_goes_with_it(tmp_path: Path) -> None:
    path = tmp_path / "psfleet-worker@0.service.d" / "gpu.conf"
    directories, files = described([{"path": str(path), "content": "[Service]\n"}])
    apply(directories, files, [])
    assert files[0].is_fulfilled()
    apply([], [], [path])
    assert list(tmp_path.iterdir()) == []


@as_root
def test_a_file_of_another_user_is_written_with_that_users_rights(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    secret, theirs = tmp_path / "root", tmp_path / "theirs"
    secret.mkdir(mode=0o700)
    theirs.symlink_to(secret)
    _, files = described(
        [{"path": f"{theirs}/config", "content": "x\n", "owner": "nobody", "group": "nogroup"}]
    )
    with pytest.raises(PermissionError):
        apply([], files, [])
    assert list(secret.iterdir()) == []
    with acting_as((65534, 65534)):
        assert os.geteuid() == 65534
    assert os.geteuid() == 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"path": "/x"}, "content"),
        ({"path": "/x", "content": "", "mod": "0600"}, "mod"),
    ],
)
def test_a_wrong_description_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        described([values])


def test_an_unknown_owner_is_named(tmp_path: Path) -> None:
    directories, files = described([{"path": f"{tmp_path}/f", "content": "", "owner": "nobody-here"}])
    assert not files[0].is_fulfilled()  # check mode before the user is made
    with pytest.raises(ValueError, match="no user nobody-here"):
        apply(directories, files, [])
