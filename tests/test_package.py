"""What a user installs: the wheel, built from the sdist, in an environment without the clone."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest

from toy import write_folders

ROOT = Path(__file__).resolve().parents[1]


def build(source: Path, target: str, out: Path) -> Path:
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", target, "-d", out], cwd=source, check=True)
    (found,) = out.iterdir()
    return found


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands of an environment with the wheel, and with this one's dependencies."""
    place = tmp_path_factory.mktemp("package")
    with tarfile.open(build(ROOT, "sdist", place / "sdist")) as archive:
        archive.extractall(place / "source", filter="data")
    (source,) = (place / "source").iterdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / "venv"], check=True)
    pip = [sys.executable, "-m", "pip", "--python", place / "venv", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, build(source, "wheel", place / "wheel")], check=True)
    (packages,) = (place / "venv").glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return place / "venv" / "bin"


def test_the_wheel_trains_and_predicts_outside_the_clone(installed: Path, tmp_path: Path) -> None:
    write_folders(tmp_path / "data", {"central": 0, "north": 1}, per_class=4)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def proud(*words: str) -> str:
        done = subprocess.run(
            [installed / "proud", *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    short = "--size 16 --epochs 1 --pretrain-epochs 1 --batch-size 8 --views 1 --device cpu --threads 1"
    proud("train", "--data", "data", "--labeled", "central", "--test", "none", "--out", "run", *short.split())
    proud("predict", "run", "data/north", "--out", "predictions.csv")
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 1 + 16
    package = Path(proud_file(installed / "python", tmp_path, environment)).parent
    assert package.is_relative_to(installed.parent)
    ours = ROOT / "src" / "proud"
    files = {path.relative_to(ours) for path in ours.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert files <= {path.relative_to(package) for path in package.rglob("*")}  # templates and the like


def proud_file(python: Path, folder: Path, environment: dict[str, str]) -> str:
    command = [python, "-c", "import proud; print(proud.__file__)"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()
