"""Which of the two locks an environment is made from, and that what its compilers write runs on its drivers."""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cuda.bindings import nvjitlink
from cuda.bindings.utils import get_minimal_required_cuda_ver_from_ptx_ver as first_cuda_with

from analysis.measure import compilers, driver
from kernels import VERSIONS, Problem
from kernels.limits import EMULATED_TARGET
from kernels.runtime import cache, compile
from kernels.runtime.compile import TARGETS, CompileError, assembled, compile_ptx, require_target

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ("requirements.txt", "requirements-cuda12.txt")
OF_CUDA = re.compile(r"torch|cuda-(bindings|toolkit)|nvidia-(?!ml-py)")  # what may differ from lock to lock
ELF = b"\x7fELF"
V8 = Problem("rope", 1, 4, seq_q=64, hdim=512, rotary_dim=128)


def pins(lock: str) -> dict[str, str]:
    lines = (ROOT / lock).read_text().splitlines()
    return dict(line.split("==", 1) for line in lines if line and not line.startswith("#"))


def test_the_locks_differ_in_torch_and_cuda_alone() -> None:
    ours, theirs = ({pin for pin in pins(lock).items() if not OF_CUDA.match(pin[0])} for lock in LOCKS)
    assert ours == theirs


@pytest.mark.parametrize("lock", LOCKS)
def test_the_compilers_of_a_lock_are_of_one_release(lock: str) -> None:
    """An assembler rejects the PTX of a newer NVVM."""
    release = ".".join(pins(lock)["cuda-toolkit"].split(".")[:2])
    named = {name: pin for name, pin in pins(lock).items() if name.startswith("nvidia-") and name != "nvidia-ml-py"}
    assert {"nvjitlink", "cuda-nvcc"} <= {name.removeprefix("nvidia-").removesuffix("-cu12") for name in named}
    assert {name for name, pin in named.items() if not pin.startswith(f"{release}.")} == set()
    assert pins(lock)["cuda-bindings"].split(".")[0] == release.split(".")[0]


# ---------------------------------------------------------------- what a driver takes


@pytest.mark.parametrize(
    "target",
    [pytest.param(target, marks=() if target == EMULATED_TARGET else pytest.mark.deep) for target in TARGETS],
)
def test_the_driver_is_handed_machine_code_from_ptx_that_this_release_assembles(target: str) -> None:
    """A driver assembles no PTX of a newer CUDA than its own, and runs machine code of any of its major release."""
    release = nvjitlink.version()
    for launch in VERSIONS["rope_v8"](V8, target).launches:
        require_target(launch, target)
        ptx = compile_ptx(launch.kernel, target)
        written = first_cuda_with(re.search(r"^\.version (\S+)", ptx, re.MULTILINE)[1])
        assert divmod(written, 1000) <= (release[0], 10 * release[1])
        assert assembled(ptx, target).startswith(ELF)


def libcuda(version: int, error: int = 0) -> Any:
    """What ctypes loads, in place of a driver's library: one that answers `version`."""

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
def test_the_driver_says_which_lock_it_takes(
    monkeypatch: pytest.MonkeyPatch, library: Any, takes: tuple[int, int] | None, lock: int
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", library)
    assert driver.driver_cuda() == takes
    assert driver.lock_cuda(takes) == lock


def test_compilers_that_do_not_fit_each_other_are_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def newer(ptx: str, target: str) -> tuple[bytes, str]:
        raise CompileError("Unsupported .version 9.2; current version is '9.0'")

    monkeypatch.setattr(cache, "FOLDER", cache.FOLDER)
    assert compilers.main() == 0
    monkeypatch.setattr(compile, "assemble", newer)
    assert compilers.main() == 1
    assert "Unsupported .version 9.2" in capsys.readouterr().out


# ---------------------------------------------------------------- what make does


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the Makefile needs to say what it would do; python3 there prints the lock of a driver of CUDA 12."""
    for name in ("Makefile", *LOCKS):
        shutil.copy(ROOT / name, tmp_path)
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\necho 12\n")
    python.chmod(0o755)
    return tmp_path


def planned(checkout: Path, *variables: str) -> str:
    command = ["make", "--dry-run", "PYTHON3=./python3", *variables, ".venv/.stamp"]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False).stdout


def made(checkout: Path, stamp: str) -> None:
    (checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / ".venv" / "bin" / "python").touch()
    (checkout / ".venv" / ".stamp").write_text(stamp)


def installed(plan: str) -> list[str]:
    return re.findall(r"install --requirement (\S+)", plan)


def test_a_new_environment_is_made_from_the_lock_of_the_driver(checkout: Path) -> None:
    assert installed(planned(checkout)) == ["requirements-cuda12.txt"]
    assert installed(planned(checkout, "CUDA=13")) == ["requirements.txt"]
    (checkout / "python3").write_text("#!/bin/sh\necho 13\n")
    assert installed(planned(checkout)) == ["requirements.txt"]
    assert installed(planned(checkout, "CUDA=12")) == ["requirements-cuda12.txt"]


@pytest.mark.parametrize("stamp", ["13\n", ""], ids=["made for 13", "made before stamps said"])
def test_an_environment_stays_as_it_was_made_until_another_is_asked_for(checkout: Path, stamp: str) -> None:
    """The login node of a cluster has no driver, its GPU nodes have."""
    made(checkout, stamp)
    assert installed(planned(checkout)) == []
    assert installed(planned(checkout, "CUDA=13")) == []
    plan = planned(checkout, "CUDA=12")
    assert installed(plan) == ["requirements-cuda12.txt"]
    assert plan.index("venv  --clear .venv") < plan.index("pip --disable")


def test_another_cuda_is_refused_with_what_is_allowed(checkout: Path) -> None:
    done = subprocess.run(["make", "CUDA=11", "-n"], cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode and "CUDA=11: allowed are 12, 13 and auto" in done.stderr
