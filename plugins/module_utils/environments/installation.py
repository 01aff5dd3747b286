"""Fills an environment from wheels with uv, on a host, or on the controller for many hosts."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

BLOCK_BYTES = 1 << 20
# Replaces the environment's path in the scripts of an environment that was filled on the controller.
ELSEWHERE = b"/psfleet-filled-elsewhere"
# Compiles the account's own modules below a folder, with a process for each core. It runs none of them.
COMPILE = """
import compileall, functools, os, pathlib, sys
from concurrent.futures import ProcessPoolExecutor
own = [path for path in pathlib.Path(sys.argv[1]).rglob("*.py") if path.lstat().st_uid == os.getuid()]
with ProcessPoolExecutor() as pool:
    list(pool.map(functools.partial(compileall.compile_file, quiet=2), own, chunksize=32))
"""


def python_command(version: str) -> list[str]:
    """Return the beginning of a command that runs this version of Python with its standard library alone.

    Example: python_command("3.11") -> ["python3.11", "-I", "-S"]
    """
    return [f"python{version}", "-I", "-S"]


def empty_command(place: Path, version: str) -> list[str]:
    """Return the command that makes an empty environment at `place` with this host's Python `version`."""
    return [*python_command(version), "-m", "venv", "--without-pip", str(place)]


def filling_commands(place: Path, unpacked: Path, version: str) -> list[list[str]]:
    """Return the commands that fill the empty environment at `place` from an unpacked archive of wheels.

    The first one installs the wheels with uv, the second one compiles their modules.
    """
    # The lock is complete, so uv must not resolve requirements; a base environment may have some of them.
    install = [str(unpacked / "uv"), "pip", "install", "--quiet", f"--python={place}"]
    install += ["--require-hashes", "--no-deps", "--no-index", f"--find-links={unpacked / 'wheels'}"]
    install += [f"--requirement={unpacked / 'requirements.txt'}"]
    # Without byte code each start of a task takes three seconds longer, and tasks must not write any.
    return [install, [*python_command(version), "-c", COMPILE, str(place / "lib")]]


def removing_commands(place: Path, unpacked: Path, packages: Sequence[str]) -> list[list[str]]:
    """Return the command that removes packages from the environment at `place`, if there are any, in a list.

    `unpacked` is an unpacked archive of wheels.
    """
    command = [str(unpacked / "uv"), "pip", "uninstall", "--quiet", f"--python={place}", *packages]
    return [command] if packages else []


def remove_byte_code_without_source(place: Path) -> None:
    """Remove the byte code that uv leaves of removed packages, and the folders that are empty then.

    Otherwise such a folder could be imported, as an empty package.
    """
    for cache in [*(place / "lib").rglob("__pycache__")]:
        names = [(code, f"{code.name.split('.')[0]}.py") for code in cache.glob("*.pyc")]
        for code, source in names:
            if not (cache.parent / source).exists():
                code.unlink()
        folder = cache
        while not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent


def filling_settings(home: Path) -> dict[str, str]:
    """Return the environment variables for `filling_commands`.

    With them, the commands write only to `home` and the environment.
    """
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "TMPDIR": str(home),
        "LC_ALL": "C.UTF-8",
        "UV_CACHE_DIR": str(home / "cache"),
        "UV_NO_CONFIG": "1",
        "UV_OFFLINE": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_LINK_MODE": "hardlink",
    }


def make_commands_own(place: Path, base: bytes, own_place: bytes = b"") -> None:
    """Replace the path `base` in all of the environment's scripts in bin/, and in pyvenv.cfg.

    `place` is the folder where the environment is now. The new path is `own_place`, where it will be; b""
    means `place`.
    """
    for path in [place / "pyvenv.cfg", *(place / "bin").iterdir()]:
        content = b"" if path.is_symlink() else path.read_bytes()
        if base in content:
            own = path.with_name(f".{path.name}")
            own.write_bytes(content.replace(base, own_place or bytes(place)))
            own.chmod(path.stat().st_mode)
            own.replace(path)


def unpack_filled(archive: Path, place: Path) -> None:
    """Unpack an environment that the controller filled into the folder `place`, an empty environment.

    Its scripts then have this path. Raises ValueError if the archive is damaged, and OSError.
    """
    command = ["tar", "--extract", "--file=-", "--no-same-owner"]
    command += ["--blocking-factor=1024", f"--directory={place}"]  # half a megabyte at a time
    with tempfile.TemporaryFile() as errors, archive.open("rb") as stream:
        # If tar ends early, the write fails, and tar's own message says why.
        with (
            suppress(BrokenPipeError),
            subprocess.Popen(command, stdin=subprocess.PIPE, stderr=errors) as tar,
        ):
            for block in decompressed(stream):
                tar.stdin.write(block)  # type: ignore[union-attr]
        if tar.returncode:
            errors.seek(0)
            words = errors.read(1000).decode(errors="replace").strip()
            raise ValueError(f"{' '.join(command)} ended with {tar.returncode}: {words}")
    make_commands_own(place, ELSEWHERE)


class _Buffer(ctypes.Structure):
    """ZSTD_inBuffer and ZSTD_outBuffer of zstd.h."""

    _fields_ = (
        ("place", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("position", ctypes.c_size_t),
    )


def decompressed(stream: IO[bytes]) -> Iterator[memoryview]:
    """Yield the decompressed blocks of a Zstandard stream (RFC 8878), at most BLOCK_BYTES each, in order.

    A block is valid only until the next one. Raises ValueError if the stream is damaged or ends too early,
    and OSError without the library libzstd, which dpkg needs, too.
    """
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_createDStream.restype = ctypes.c_void_p
    library.ZSTD_decompressStream.restype = ctypes.c_size_t
    context = ctypes.c_void_p(library.ZSTD_createDStream())
    space = ctypes.create_string_buffer(BLOCK_BYTES)
    remaining = 1  # the library's hint for the next read; 0 at the end of a frame
    try:
        while block := stream.read(BLOCK_BYTES):
            source = _Buffer(ctypes.cast(ctypes.c_char_p(block), ctypes.c_void_p), len(block), 0)
            while source.position < source.size:
                target = _Buffer(ctypes.addressof(space), BLOCK_BYTES, 0)
                remaining = library.ZSTD_decompressStream(context, ctypes.byref(target), ctypes.byref(source))
                if library.ZSTD_isError(ctypes.c_size_t(remaining)):
                    raise ValueError("it is not an archive of Zstandard")
                yield memoryview(space)[: target.position]
        if remaining:
            raise ValueError("it ends before its end")
    finally:
        library.ZSTD_freeDStream(context)
