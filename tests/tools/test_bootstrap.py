import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.repository import ROOT

# It is built without anything from elsewhere, and says in a file that it was.
PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
BACKEND = "from pathlib import Path\nPath({ran!r}).touch()\n"


def test_setup_does_not_build_a_package_from_source(tmp_path: Path) -> None:
    ran, archive = tmp_path / "ran", tmp_path / "links/built-1.0.tar.gz"
    archive.parent.mkdir()
    with tarfile.open(archive, "w:gz") as sdist:
        for name, text in {
            "pyproject.toml": PYPROJECT,
            "backend.py": BACKEND.format(ran=str(ran)),
            "PKG-INFO": "Metadata-Version: 2.1\nName: built\nVersion: 1.0\n",
        }.items():
            member = tarfile.TarInfo(f"built-1.0/{name}")
            member.size = len(text)
            sdist.addfile(member, io.BytesIO(text.encode()))
    lock = f"built==1.0 --hash=sha256:{hashlib.sha256(archive.read_bytes()).hexdigest()}\n"
    clone, here = tmp_path / "clone", Path(sys.executable).parent
    for folder in ("tools", "requirements"):
        (clone / folder).mkdir(parents=True)
    shutil.copy(ROOT / "tools/bootstrap.sh", clone / "tools")
    for name in ("controller", "dev"):
        (clone / f"requirements/{name}.txt").write_text(lock)
    subprocess.run([here / "uv", "venv", "--quiet", "--python", sys.executable, clone / ".venv"], check=True)
    shutil.copy(here / "uv", clone / ".venv/bin")
    done = subprocess.run(
        ["bash", clone / "tools/bootstrap.sh", "controller"],
        env={
            "PATH": "/usr/bin:/bin",
            "PSFLEET_PYTHON": sys.executable,
            "UV_FIND_LINKS": str(archive.parent),
            "UV_OFFLINE": "1",
            "UV_CACHE_DIR": str(tmp_path / "cache"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode, done.stdout
    assert "uv could not install requirements/controller.txt" in done.stdout
    assert not ran.exists()
