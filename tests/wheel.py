"""The wheel that users install, built offline from a clone and unpacked."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"  # as pip does


def unpacked(folder: Path) -> Path:
    """The folder into which the wheel of a clone is unpacked: that is how a wheel of Python alone is installed."""
    clone, wheels, target = (folder / name for name in ("clone", "wheels", "target"))
    clone.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "requirements.txt"):
        shutil.copy(ROOT / name, clone)
    for name in ("kernels", "analysis"):
        shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
    wheels.mkdir()
    built = subprocess.run([sys.executable, "-c", BUILD, str(wheels)], cwd=clone, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target
