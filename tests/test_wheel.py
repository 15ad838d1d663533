"""The wheel: what is in it, and that it works outside the repository."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ("nas_rlm", "search_spaces", "pyproject.toml", "README.md", "LICENSE")
MEGABYTES = 40
CELL = "|nor_conv_3x3~0|+|skip_connect~0|nor_conv_3x3~1|+|none~0|avg_pool_3x3~1|nor_conv_1x1~2|"


def run(*command: str | Path, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, built from a copy: files of an earlier build in the repository would enter it."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", built, cwd=source)
    (path,) = built.iterdir()
    return path


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory) -> Path:
    """An environment with the wheel, and the dependencies of this one without its nas-rlm."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    run(
        *(sys.executable, "-m", "pip", "--python", python),
        *("install", "--quiet", "--no-deps", "--no-index", wheel),
        cwd=folder,
    )
    # A path in a .pth file comes after the environment's own packages, and the .pth files there,
    # such as that of an editable install, are not read.
    packages = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder)
    dependencies = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    Path(packages.strip(), "dependencies.pth").write_text("\n".join(dependencies))
    return folder


def test_the_wheel_has_what_the_package_reads_and_nothing_else(wheel):
    with ZipFile(wheel) as archive:
        names = {PurePosixPath(name) for name in archive.namelist()}
    files = {path for path in names if not path.parts[0].endswith(".dist-info")}
    assert {path.parts[0] for path in files} == {"nas_rlm", "search_spaces"}
    for folder in ("nas_rlm/assets", "nas_rlm/recipes"):
        expected = (path for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix != ".jsonl")
        assert {PurePosixPath(path.relative_to(ROOT).as_posix()) for path in expected} <= files
    assert {PurePosixPath("nas_rlm/py.typed"), PurePosixPath("search_spaces/py.typed")} <= files
    assert not [path for path in files if path.suffix == ".jsonl" or "tests" in path.parts]


def test_the_wheel_is_small(wheel):
    assert wheel.stat().st_size < MEGABYTES * 10**6


def test_the_installed_wheel_predicts(environment, tmp_path):
    python = environment / "bin" / "python"
    imported = run(python, "-c", "import nas_rlm; print(nas_rlm.__file__)", cwd=tmp_path)
    assert Path(imported.strip()).is_relative_to(environment)
    (tmp_path / "archs.txt").write_text(CELL + "\n")
    run(
        *(environment / "bin" / "nas-rlm", "predict", "--space", "nasbench201", "--archs", "archs.txt"),
        *("--objectives", "accuracy,latency/pixel3", "--out", "predictions.csv"),
        cwd=tmp_path,
    )
    header, row = (tmp_path / "predictions.csv").read_text().splitlines()
    assert "accuracy" in header
    assert CELL in row
