"""The login that proves passwordless SSH: what it does while sshd reads its files again."""

import time
from pathlib import Path

from plugins.modules.ssh_login import failure


def test_a_login_that_sshd_refuses_while_it_reloads_is_tried_again(tmp_path: Path) -> None:
    tried = tmp_path / "tried"
    script = f"echo x >> {tried}; [ $(wc -l < {tried}) -ge 3 ] || {{ echo refused >&2; exit 255; }}"
    command = ["sh", "-c", script]
    assert failure(command) == "refused"
    assert failure(command, 20) == ""
    assert len(tried.read_text().splitlines()) == 3


def test_a_login_that_goes_on_failing_ends_with_what_it_said_last() -> None:
    begin = time.monotonic()
    assert failure(["sh", "-c", "echo denied >&2; exit 255"], 0.5) == "denied"
    assert 0.5 <= time.monotonic() - begin < 10
