"""The wheel, built and installed as a user would get it: into a fresh environment, with nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# The wheel compiles the whole library once more where ccache does not have it.
pytestmark = pytest.mark.timeout(1500)

BUNDLED = ("libjpeg", "libspng", "libwebp", "libisal", "libhwy", "libfmt", "libcrypto")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    build = subprocess.run(
        [ROOT / "scripts" / "wheel.sh", out],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert build.returncode == 0, build.stdout + build.stderr
    (path,) = out.glob("headrace-*.whl")
    return path


@pytest.fixture(scope="module")
def venv(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh virtual environment with the wheel and nothing else: no index, no dependencies."""
    path = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", path], check=True)
    pip = [path / "bin" / "python", "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
    subprocess.run([*pip, wheel], check=True)
    return path


def run(venv: Path, *command: str) -> str:
    """Run a program of the environment from the root folder, seeing no variable of ours."""
    done = subprocess.run(
        [venv / "bin" / command[0], *command[1:]],
        env={"PATH": "/usr/bin:/bin"},
        cwd="/",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def project_version() -> str:
    found = re.search(r"project\(headrace VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert found
    return found.group(1)


def test_program_prints_the_project_version(venv: Path) -> None:
    assert project_version() in run(venv, "headrace", "version")


def test_package_imports_from_the_environment(venv: Path) -> None:
    where = run(venv, "python", "-c", "import headrace; print(headrace.__file__)").strip()
    assert Path(where).is_relative_to(venv)


def test_metadata_has_the_same_version_and_needs_nothing(venv: Path) -> None:
    code = "import importlib.metadata as m; print(m.version('headrace'), m.requires('headrace'))"
    version, requires = run(venv, "python", "-c", code).strip().split(" ", 1)
    assert version == project_version()
    assert requires == "None" or "extra ==" in requires
    assert all("extra ==" in one for one in re.findall(r"'([^']*)'", requires) if ">=" in one)


def test_fsspec_will_find_the_file_systems(venv: Path) -> None:
    code = (
        "import importlib.metadata as m, importlib.util as u\n"
        "for p in m.entry_points(group='fsspec.specs'):\n"
        "    print(p.name, p.attr, u.find_spec(p.module) is not None)"
    )
    assert sorted(run(venv, "python", "-c", code).splitlines()) == [
        "hrcache CachedFileSystem True",
        "hrckpt CheckpointFileSystem True",
    ]


def test_libraries_come_from_the_wheel(venv: Path) -> None:
    """No library outside the C and C++ run time may be needed from the machine."""
    (package,) = venv.glob("lib/python*/site-packages/headrace")
    binaries = [package / "bin" / "headrace", *package.glob("_native*.so")]
    assert len(binaries) == 2
    for binary in binaries:
        listed = subprocess.run(
            ["ldd", binary],
            env={"PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert "not found" not in listed
        for line in listed.splitlines():
            if any(name in line for name in BUNDLED):
                assert str(venv) in line or "headrace.libs" in line, line


def test_wheel_holds_no_source_and_no_cache(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert not [name for name in names if name.endswith((".cc", ".h", ".pyc", ".a"))]
    assert any(name.endswith("py.typed") for name in names)
    assert any(re.match(r"headrace\.libs/libjpeg", name) for name in names)
