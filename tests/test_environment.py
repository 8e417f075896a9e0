"""The two locks: each is of one CUDA release, fits the ranges of the package, and is the one that a driver takes."""

import ctypes
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cuda.bindings import nvjitlink
from cuda.bindings.utils import get_minimal_required_cuda_ver_from_ptx_ver as first_cuda_with
from packaging.requirements import Requirement

from analysis.measure import environment
from analysis.record.files import REFERENCE
from kernels import VERSIONS, Problem
from kernels.runtime.compile import TARGETS, assembled, compile_ptx, require_target
from tests.sampling import swept

ROOT = Path(__file__).resolve().parent.parent
LOCKS = tuple(environment.LOCKS.values())
SCRIPT = "analysis/measure/environment.py"
OF_CUDA = re.compile(r"torch|cuda-(bindings|toolkit)|nvidia-(?!ml-py)")  # what may differ from lock to lock
ELF = b"\x7fELF"
V8 = Problem("rope", 1, 4, seq_q=64, hdim=512, rotary_dim=128)


def pinned(lock: str) -> list[str]:
    return [line for line in (ROOT / lock).read_text().splitlines() if line and not line.startswith("#")]


def pins(lock: str) -> dict[str, str]:
    return dict(line.split("==", 1) for line in pinned(lock))


def test_locks_differ_in_torch_and_cuda_alone() -> None:
    ours, theirs = ({pin for pin in pins(lock).items() if not OF_CUDA.match(pin[0])} for lock in LOCKS)
    assert ours == theirs


@pytest.mark.parametrize("lock", LOCKS)
def test_compilers_of_a_lock_are_of_one_release(lock: str) -> None:
    """An assembler rejects the PTX of a newer NVVM."""
    release = ".".join(pins(lock)["cuda-toolkit"].split(".")[:2])
    named = {name: pin for name, pin in pins(lock).items() if name.startswith("nvidia-") and name != "nvidia-ml-py"}
    assert {"nvjitlink", "cuda-nvcc"} <= {name.removeprefix("nvidia-").removesuffix("-cu12") for name in named}
    assert {name for name, pin in named.items() if not pin.startswith(f"{release}.")} == set()
    assert pins(lock)["cuda-bindings"].split(".")[0] == release.split(".")[0]


@pytest.mark.parametrize("lock", LOCKS)
def test_pins_lie_within_the_ranges_of_the_package(lock: str) -> None:
    tried = {requirement.name: requirement.specifier for requirement in map(Requirement, pinned(lock))}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for requirement in map(Requirement, project["dependencies"]):
        (pin,) = tried[requirement.name]
        assert requirement.specifier.contains(pin.version), requirement


# ---------------------------------------------------------------- what make takes


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`make` where the environment is there, and its Python prints what it is called with."""
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / SCRIPT).parent.mkdir(parents=True)
    for name in ("Makefile", SCRIPT, *LOCKS):
        shutil.copy(ROOT / name, tmp_path / name)
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text('#!/bin/sh\necho "$@" "${PYTHONSAFEPATH-unset}${PYTHONOPTIMIZE-unset}"\n')
    python.chmod(0o755)
    (tmp_path / ".venv" / ".stamp").write_text("13\n")

    def made(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        here = {**plain, "PYTHONSAFEPATH": "1", "PYTHONOPTIMIZE": "2", **environment}
        return subprocess.run(["make", "-s", *arguments], cwd=tmp_path, env=here, capture_output=True, text=True)

    return made


BOOK, MEASURE = "-m analysis build --gpu {}", "-m analysis measure --study all --gpu {}"


@pytest.mark.parametrize(
    ("arguments", "called"),
    [
        (("book",), BOOK.format(REFERENCE)),
        (("book", "GPU=nvidia-h200"), BOOK.format("nvidia-h200")),
        (("book", "gpu=nvidia-h200"), BOOK.format("nvidia-h200")),
        (("book", "gpu=4090", "GPU=4090", "source=recorded"), BOOK.format("4090")),
        (("measure", "gpu=lab"), MEASURE.format("lab")),
        (("measure", "GPU=lab"), MEASURE.format("lab")),
        (("measure",), "-m analysis measure --study all"),
    ],
)
def test_make_takes_papermills_names_and_no_setting_of_the_users_python(
    make: Callable[..., Any], arguments: tuple[str, ...], called: str
) -> None:
    assert make(*arguments).stdout.split() == [*called.split(), "unsetunset"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("Gpu=nvidia-h200",), "Gpu: there is no such option; allowed are PYTHON3 CUDA GPU"),
        (("STRICKT=1",), "STRICKT: there is no such option"),
        (("gpu=a", "GPU=b"), "GPU=b and gpu=a: name one card"),
        (("CUDA=14",), "CUDA=14: allowed are 12, 13 and auto"),
        (("source=live",), "source=live: make shows what is recorded; make gpu measures the card at hand"),
    ],
)
def test_make_refuses_what_it_would_ignore(make: Callable[..., Any], arguments: tuple[str, ...], says: str) -> None:
    done = make("book", *arguments)
    assert done.returncode and says in done.stderr and not done.stdout


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Commands that are run where an environment of CUDA 13 is there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for name in (*LOCKS, ".venv/bin/python", ".venv/.stamp", ".venv/.transformers"):
        (tmp_path / name).write_text("13\n")
    done: list[str] = []
    monkeypatch.setattr(environment, "run", lambda *command: done.append(" ".join(command)))
    return done


def test_environment_of_another_release_is_emptied_first(steps: list[str]) -> None:
    for asked in ("auto", "13"):  # that of .venv
        environment.main(asked)
        assert steps == [] and environment.STAMP.read_text() == "13\n"
    environment.main("12")
    emptied, installed = steps
    assert "venv --clear" in emptied and "requirements-cuda12.txt" in installed
    assert environment.STAMP.read_text() == "12\n"


def test_changed_pins_are_installed_again(steps: list[str]) -> None:
    os.utime(environment.STAMP, (0, 0))
    environment.main("auto")
    assert [step.split()[-1] for step in steps] == ["requirements.txt"] and not Path(".venv/.transformers").exists()


# ---------------------------------------------------------------- what a driver takes


@pytest.mark.parametrize("target", swept(zip(TARGETS), 0, 2))
def test_driver_is_handed_machine_code_from_ptx_that_this_release_assembles(target: str) -> None:
    """A driver assembles no PTX of a newer CUDA than its own, and runs machine code of any of its major release."""
    release = nvjitlink.version()
    for launch in VERSIONS["rope_v8"](V8, target).launches:
        require_target(launch, target)
        ptx = compile_ptx(launch.kernel, target)
        written = first_cuda_with(re.search(r"^\.version (\S+)", ptx, re.MULTILINE)[1])
        assert divmod(written, 1000) <= (release[0], 10 * release[1])
        assert assembled(ptx, target).startswith(ELF)


def libcuda(version: int, error: int = 0) -> Any:
    """A driver's library for ctypes that answers `version`."""

    class Library:
        @staticmethod
        def cuDriverGetVersion(pointer: Any) -> int:
            pointer._obj.value = version
            return error

    return lambda name: Library


def no_library(name: str) -> Any:
    raise OSError(f"{name}: cannot open shared object file")


@pytest.mark.parametrize(
    ("library", "takes", "lock"),
    [
        (libcuda(12_000), (12, 0), 12),
        (libcuda(12_040), (12, 4), 12),
        (libcuda(13_000), (13, 0), 13),
        (libcuda(14_010), (14, 1), 13),
        (libcuda(11_080), (11, 8), 13),  # no lock fits: that of the book
        (libcuda(12_040, error=999), None, 13),
        (no_library, None, 13),
    ],
)
def test_driver_says_which_lock_it_takes(
    monkeypatch: pytest.MonkeyPatch, library: Any, takes: tuple[int, int] | None, lock: int
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", library)
    assert environment.driver_cuda() == takes
    assert environment.lock_cuda(takes) == lock
