"""Makes uv act on this machine's pip settings, so that a mirror or a proxy is configured only once.

As a command, it runs uv with these settings: python -m psfleet.carry.pip_settings pip compile ...
"""

import ast
import math
import os
import re
import ssl
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

UV = str(Path(sys.executable).parent / "uv")
# The sections of pip's configuration that count here, by ascending precedence; ":env:" is the environment.
_SECTIONS = ("global", "install", "download", ":env:")
# {pip's setting with one value: uv's variable}
_VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "pypi-url": "UV_DEFAULT_INDEX",
    "client-cert": "SSL_CLIENT_CERT",
    "retries": "UV_HTTP_RETRIES",
}
_TIMEOUTS = ("timeout", "default-timeout")
# pip's settings for package indexes and the network.
_OF_INDEXES = (
    *("index-url", "pypi-url", "extra-index-url", "find-links", "no-index", "pre", "constraint"),
    *("trusted-host", "cert", "client-cert", "proxy", "timeout", "default-timeout", "retries"),
)
# The variables of the environment that pip ignores if its setting `proxy` is set.
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_TRUE = ("y", "yes", "t", "true", "on", "1")


@dataclass(frozen=True)
class UvSettings:
    """How to run uv: its whole `environment`, `options` of its command line, and `constraints`.

    `constraints` are paths or URLs of files with constraints. Addresses of indexes may contain passwords, so
    they are in the environment, never in `options`.
    """

    environment: Mapping[str, str]
    options: Sequence[str]
    constraints: Sequence[str]


def uv_settings() -> UvSettings:
    """Return settings with which uv acts as this machine's pip does.

    Variables of uv that are set in this process's environment have precedence.
    """
    pip = pip_settings()
    found = {variable: pip[name] for name, variable in _VARIABLES.items() if name in pip}
    if links := [*_places(pip.get("find-links", ""))]:
        found["UV_FIND_LINKS"] = ",".join(links)
    if hosts := pip.get("trusted-host", "").split():
        found["UV_INSECURE_HOST"] = " ".join(hosts)
    if extra := pip.get("extra-index-url", "").split():
        found["UV_INDEX"] = " ".join(extra)
        # pip takes the best version of all indexes, uv by itself those of the first index with the package.
        if "UV_INDEX" not in os.environ:
            found["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    if seconds := next((pip[name] for name in _TIMEOUTS if name in pip), ""):
        found["UV_HTTP_TIMEOUT"] = str(math.ceil(float(seconds)))
    if _is_true(pip, "pre"):
        found["UV_PRERELEASE"] = "allow"
    found |= _certificates(pip)
    return UvSettings(
        environment={**found, "UV_NO_CONFIG": "1", **_environment(pip)},
        options=("--no-index",) if _is_true(pip, "no-index") else (),
        constraints=tuple(_absolute(each) for each in pip.get("constraint", "").split()),
    )


def pip_environment() -> dict[str, str]:
    """Return the environment in which `pip download` uses all pip settings, also those for `pip install`.

    This is the environment of this process, and PIP_* variables for settings that it does not set.
    """
    pip = pip_settings()
    given = {f"PIP_{name.upper().replace('-', '_')}": pip[name] for name in _OF_INDEXES if name in pip}
    return {**given, **os.environ}


def pip_settings() -> dict[str, str]:
    """Return {long name such as "index-url": value} of pip's settings, from all files and the environment.

    If a setting is set in several sections, the last counts: global, install, download, environment. A
    setting without a value is left out.
    """
    places: dict[str, list[str]] = {}
    for line in _pip("config", "list").splitlines():
        place, _, value = line.partition("=")
        places.setdefault(place, []).append(str(ast.literal_eval(value)))
    found: dict[str, str] = {}
    for section in _SECTIONS:
        for place, values in places.items():
            if place.startswith(f"{section}."):
                # pip lists the files by their names, and knows which of them wins.
                value = values[0] if len(values) == 1 else _pip("config", "get", place).rstrip("\n")
                found |= {place.removeprefix(f"{section}."): value} if value else {}
    return found


def without_passwords(text: str) -> str:
    """Return the text with the user and password in each URL replaced by "****".

    Example: without_passwords("https://me:secret@host/simple") -> "https://****@host/simple"
    """
    return re.sub(r"(?<=://)[^\s/@]+@", "****@", text)


def _pip(*arguments: str) -> str:
    command = [sys.executable, "-m", "pip", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _is_true(pip: Mapping[str, str], name: str) -> bool:
    return pip.get(name, "").lower() in _TRUE


def _absolute(place: str) -> str:
    """Return a path as an absolute path, because uv runs in another folder; a URL is returned unchanged."""
    return place if "://" in place else str(Path(place).expanduser().absolute())


def _places(links: str) -> Iterable[str]:
    """Yield the places of find-links that exist, as absolute paths, and all URLs, unchanged.

    `links` separates places by spaces. pip ignores a missing path, but uv fails.
    """
    return (place for place in map(_absolute, links.split()) if "://" in place or Path(place).exists())


def _certificates(pip: Mapping[str, str]) -> dict[str, str]:
    """Return uv's variables for the authorities that pip trusts: pip's `cert`, else the system's.

    Return {} if there is neither.
    """
    if bundle := pip.get("cert"):
        return {"SSL_CERT_DIR" if Path(bundle).is_dir() else "SSL_CERT_FILE": bundle}
    system = ssl.get_default_verify_paths()
    stored = system.cafile or (system.capath and any(Path(system.capath).iterdir()))
    return {"UV_SYSTEM_CERTS": "true"} if stored else {}


def _environment(pip: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment; pip's `proxy`, if there is one, replaces the proxies in it."""
    if not pip.get("proxy"):
        return dict(os.environ)
    kept = {name: value for name, value in os.environ.items() if name.upper() not in (*_PROXIES, "NO_PROXY")}
    return {**kept, **dict.fromkeys(_PROXIES, pip["proxy"])}


if __name__ == "__main__":
    settings = uv_settings()
    command = [UV, *sys.argv[1:], *settings.options]
    sys.exit(subprocess.run(command, env=settings.environment, check=False).returncode)
