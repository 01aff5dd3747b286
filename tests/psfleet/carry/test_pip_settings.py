"""uv resolves as this machine's pip does: the real uv and the real pip, with indexes served on loopback."""

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from plugins.module_utils.environments.environment import TENSORFLOW_VERSION
from psfleet.carry.pip_settings import pip_environment, uv_settings, without_passwords
from tests.psfleet.carry.made_wheels import make_package
from tests.psfleet.carry.test_program_lock import CPU, program_lock, resolved
from tests.repository import ROOT

TOKEN = "a-secret-token"
OF_TOKEN = base64.b64encode(f"me:{TOKEN}".encode()).decode()


class Index(SimpleHTTPRequestHandler):
    """A folder for each package is all that an index is. What is below private/ needs the token."""

    asked: list[str]
    command_lines: list[str]

    def do_GET(self) -> None:
        """Answer as an index, and also for http://index.invalid, as a proxy."""
        self.asked.append(self.path)
        self.path = self.path.removeprefix("http://index.invalid")
        if self.path.startswith("/private/"):
            self.command_lines += command_lines_now()
            if self.headers.get("Authorization") != f"Basic {OF_TOKEN}":
                self.send_error(401)
                return
        super().do_GET()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def command_lines_now() -> list[str]:
    """Return the command lines of all processes that run now, of uv and pip among them."""
    done = subprocess.run(["ps", "-eo", "args", "-ww"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve the folders of the test's own folder, and return the address; pip has no settings yet."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_")) or "proxy" in name.lower()]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.chdir(tmp_path)
    Index.asked, Index.command_lines = [], []
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Index, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def with_pip_conf(monkeypatch: pytest.MonkeyPatch, text: str, **names: str) -> None:
    """Let pip have a configuration of this text, with the names in it."""
    Path("pip.conf").write_text(text.format(**names), encoding="utf-8")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(Path("pip.conf").absolute()))


def pips_choice(*requirements: str) -> dict[str, str]:
    """Return the packages and versions that pip itself would install."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    command += ["--report=-", "--only-binary=:all:", "--target=here", "--python-version=3.11", *requirements]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    installed = [each["metadata"] for each in json.loads(done.stdout)["install"]]
    return {each["name"]: each["version"] for each in installed}


def made(folder: Path, versions: Mapping[str, Mapping[str, str]]) -> None:
    """Make index -> package -> versions; each index has TensorFlow, too."""
    for index, packages in versions.items():
        of_tensorflow = folder / index / "tensorflow-cpu" if index != "wheels" else folder / index
        make_package(of_tensorflow, "tensorflow_cpu", TENSORFLOW_VERSION)
        for name, numbers in packages.items():
            for version in numbers.split():
                place = folder / index / name if index != "wheels" else folder / index
                requires = ["base==2.0"] if name == "plots" else []
                make_package(place, name, version, requires)


CASES = {
    # The extra index has an older version of what plots requires.
    "the extra index lacks a version; the section of pip install": (
        "[install]\nindex-url = {at}/public\nextra-index-url =\n  {at}/own\n",
        {"plots": "1.0", "base": "2.0"},
    ),
    "the highest version of all": (
        "[global]\nindex-url = {at}/own\nextra-index-url = {at}/more\n  {at}/public\n",
        {"plots": "1.0", "base": "2.0", "free": "3.0"},
    ),
    "a constraint": (
        "[global]\nindex-url = {at}/public\nconstraint = limits.txt\n",
        {"free": "2.0"},
    ),
    "a relative folder of wheels, a missing one, and no index": (
        "[global]\nindex-url = {at}/public\nno-index = yes\nfind-links = wheels\n  /no/such/folder\n",
        {"free": "1.5"},
    ),
    "versions before the final one": (
        "[global]\nindex-url = {at}/public\npre = true\n",
        {"early": "2.0rc1"},
    ),
    "final versions": ("[global]\nindex-url = {at}/public\n", {"early": "1.0"}),
}


@pytest.mark.parametrize("case", CASES)
def test_uv_takes_the_versions_that_pip_takes(
    served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    own = {"plots": "1.0", "base": "1.0"}
    public = {"base": "1.0 2.0", "free": "1.0 2.0", "early": "1.0 2.0rc1", "plots": ""}
    more = {"free": "3.0", "base": "0.5"}
    made(tmp_path, {"own": own, "public": public, "more": more, "wheels": {"free": "1.5"}})
    (tmp_path / "limits.txt").write_text("free<3\n")
    text, expected = CASES[case]
    with_pip_conf(monkeypatch, text, at=served)
    names = [name for name in expected if name != "base"]
    assert pips_choice(*names) == expected
    assert resolved(program_lock(tmp_path, CPU), "".join(f"{name}\n" for name in names)) == expected
    # pip downloads with the same settings what uv has resolved.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest=got", *names]
    subprocess.run(command, env=pip_environment(), check=True)
    assert {path.name.split("-")[0] for path in Path("got").iterdir()} == set(names)


@pytest.mark.parametrize(
    ("name", "value"), [("UV_INDEX_STRATEGY", "first-index"), ("UV_INDEX", "{at}/own"), ("", "")]
)
def test_a_package_of_the_private_index_is_not_taken_from_the_public_one_if_uv_is_told_so(
    served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    made(tmp_path, {"own": {"secret": "1.0"}, "public": {"secret": "9.0", "open": "2.0"}})
    with_pip_conf(monkeypatch, "[global]\nindex-url = {at}/public\nextra-index-url = {at}/own\n", at=served)
    if name:
        monkeypatch.setenv(name, value.format(at=served))
    lock = program_lock(tmp_path, CPU)
    chosen = "1.0" if name else "9.0"
    assert resolved(lock, "secret\nopen\n") == {"secret": chosen, "open": "2.0"}
    # What is chosen once stays, by its hash, until the lock is removed.
    made(tmp_path, {"public": {"secret": "10.0"}})
    assert resolved(lock, "secret\nopen\n") == {"secret": chosen, "open": "2.0"}


def test_the_password_of_an_index_is_in_no_command_line_and_in_no_message(
    served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path, {"private": {"secret": "1.0"}})
    with_name = served.replace("://", f"://me:{TOKEN}@")
    with_pip_conf(monkeypatch, "[global]\nindex-url = {at}/private\n", at=with_name)
    lock = program_lock(tmp_path, CPU)
    assert resolved(lock, "secret\n") == {"secret": "1.0"}
    assert any("uv pip compile" in line for line in Index.command_lines)
    assert not [line for line in Index.command_lines if TOKEN in line]
    assert TOKEN not in lock.path.read_text()
    for at, required in ((with_name, "absent"), (f"http://me:{TOKEN}@127.0.0.1:9", "absent==2")):
        with_pip_conf(monkeypatch, "[global]\nextra-index-url = {at}/private\nno-index = 0\n", at=at)
        monkeypatch.setenv("PIP_INDEX_URL", f"{at}/private")
        with pytest.raises(ValueError, match="uv printed") as error:
            resolved(lock, f"{required}\n")
        assert TOKEN not in str(error.value)
    assert without_passwords(f"at https://me:{TOKEN}@host/simple, a@b") == "at https://****@host/simple, a@b"


def test_the_proxy_of_pip_wins_over_those_of_the_environment(
    served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path, {"public": {"open": "2.0"}})
    with_pip_conf(
        monkeypatch,
        "[global]\nindex-url = http://index.invalid/public\ntrusted-host = index.invalid\nproxy = {at}\n",
        at=served,
    )
    for name in ("http_proxy", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "index.invalid")
    assert pips_choice("open") == {"open": "2.0"}
    Index.asked.clear()
    assert resolved(program_lock(tmp_path, CPU), "open\n") == {"open": "2.0"}
    assert "http://index.invalid/public/open/" in Index.asked


def test_network_settings_are_passed_to_uv_and_the_environment_wins_over_files(
    served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "authorities").mkdir()
    text = (
        "[global]\nindex-url = https://mirror.example.org/simple\n"
        "trusted-host = a.example.org\n    b.example.org:8080\n"
        "cert = {folder}/my certificates/ca.pem\nclient-cert = {folder}/me.pem\ntimeout = 5.5\nretries = 7\n"
    )
    for name in ("UV_HTTP_RETRIES", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    with_pip_conf(monkeypatch, text, folder=str(tmp_path))
    expected = {
        "UV_DEFAULT_INDEX": "https://mirror.example.org/simple",
        "UV_INSECURE_HOST": "a.example.org b.example.org:8080",
        "SSL_CERT_FILE": f"{tmp_path}/my certificates/ca.pem",
        "SSL_CLIENT_CERT": f"{tmp_path}/me.pem",
        "UV_HTTP_TIMEOUT": "6",
        "UV_HTTP_RETRIES": "7",
    }
    found = uv_settings().environment
    assert {name: found.get(name) for name in expected} == expected
    assert "UV_INDEX_STRATEGY" not in found
    monkeypatch.setenv("PIP_INDEX_URL", f"{served}/simple")
    monkeypatch.setenv("PIP_CERT", str(tmp_path / "authorities"))
    monkeypatch.setenv("UV_HTTP_TIMEOUT", "60")
    found = uv_settings().environment
    assert found["UV_DEFAULT_INDEX"] == f"{served}/simple"
    assert found["SSL_CERT_DIR"] == str(tmp_path / "authorities")
    assert found["UV_HTTP_TIMEOUT"] == "60"


def test_the_locks_of_psfleet_itself_are_resolved_with_the_same_settings(
    served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path, {"public": {"open": "2.0"}})
    with_pip_conf(monkeypatch, "[global]\nindex-url = {at}/public\n", at=served)
    command = [sys.executable, "-m", "psfleet.carry.pip_settings", "pip", "compile", "--quiet", "-"]
    done = subprocess.run(
        command,
        input="open\n",
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "open==2.0" in done.stdout
    assert "psfleet.carry.pip_settings pip compile" in (ROOT / "tools/lock.sh").read_text(encoding="utf-8")
