"""State of a process: its environment variables, its home, its Numba, and the cache of compiled kernels."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.record.files import ROOT
from kernels import VERSIONS, Problem
from kernels.limits import EMULATED_TARGET
from kernels.runtime import cache, compile
from kernels.runtime.compile import assembled, compile_ptx, is_cached
from kernels.runtime.environment import cache_folder

KERNEL = VERSIONS["attention_baseline"](Problem("attention", seq_q=64, hdim=64)).launches[0].kernel
SITE = next(path for path in sys.path if path.endswith("site-packages"))


def fresh() -> tuple[str, bytes]:
    compile._compile_once.cache_clear()
    ptx = compile_ptx(KERNEL)
    return ptx, assembled(ptx, EMULATED_TARGET)


DAMAGE = {"empty": lambda kept: b"", "cut": lambda kept: kept[:-100], "changed": lambda kept: kept[:99] + kept[100:]}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_file_is_removed_and_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage) -> None:
    monkeypatch.setattr(cache, "FOLDER", tmp_path)
    whole = fresh()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".ptx", ".cubin"} and is_cached(KERNEL, EMULATED_TARGET)
    kept = {path: path.read_bytes() for path in files}
    for path in files:
        path.write_bytes(damage(kept[path]))
    assert not is_cached(KERNEL, EMULATED_TARGET)
    again = fresh()
    assert again[0].count("\n") == whole[0].count("\n") and again[1].startswith(b"\x7fELF")
    assert is_cached(KERNEL, EMULATED_TARGET)


def test_folder_that_cannot_be_used_fails_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.touch()
    for folder in (None, file, file / "below", tmp_path / ("n" * 300)):
        monkeypatch.setattr(cache, "FOLDER", folder)
        assert cache.load_or_make("k" * 64, ".ptx", lambda: b"made") == b"made"
        assert cache.load("k" * 64, ".ptx") is None and not cache.keeps()


def test_folder_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for named, folder in (("", ".cache/fused-positional-embeddings"), ("~/x", "x"), (str(tmp_path / "y"), "y")):
        monkeypatch.setenv("FUSED_PE_CACHE", named)
        assert cache_folder() == tmp_path / folder
    monkeypatch.setenv("FUSED_PE_CACHE", "z")
    assert cache_folder() == Path.cwd() / "z"
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", lambda user: {}[user])
    assert cache_folder() == Path.cwd() / "z"
    monkeypatch.delenv("FUSED_PE_CACHE")
    assert cache_folder() is None


USE = """
from kernels import VERSIONS, Problem
from kernels.runtime.compile import compile_ptx
print(compile_ptx(VERSIONS["attention_baseline"](Problem("attention", seq_q=64, hdim=64)).launches[0].kernel))
"""


def said(*options: str, code: str = USE, **environment: str) -> subprocess.CompletedProcess[str]:
    found = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run([sys.executable, *options, "-c", code], env=found, capture_output=True, text=True)


def test_ptx_does_not_depend_on_the_options_of_the_process(tmp_path: Path, monkeypatch) -> None:
    """NUMBA_OPT=0 makes other PTX of the same kernel, and so do the others; without a home nothing is kept."""
    monkeypatch.setattr(cache, "FOLDER", tmp_path)
    options = {"NUMBA_OPT": "0", "NUMBA_FORCE_CUDA_CC": "7.5", "NUMBA_CUDA_ENABLE_NRT": "1"}
    options |= {"NUMBA_CUDA_DEBUGINFO": "1"}
    strange = said(FUSED_PE_CACHE="/dev/null", HOME="/dev/null", **options)
    assert strange.returncode == 0, strange.stderr
    bare = [re.sub(r"[0-9a-zA-Z_$]{20,}|smem_\d+", "N", ptx).strip() for ptx in (fresh()[0], strange.stdout)]
    assert ".visible .entry" in bare[0] and bare[0] == bare[1]


def test_import_warns_of_nothing_and_takes_numba_cuda_without_its_pth_file() -> None:
    path = os.pathsep.join((str(ROOT), SITE))
    done = said("-W", "error", "-S", code="import kernels, kernels.op", PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    done = said("-S", code="import numba.cuda, kernels", PYTHONPATH=path)
    assert "not from the package numba-cuda: restart Python" in done.stderr
    done = said(code="import kernels", NUMBA_ENABLE_CUDASIM="1")
    assert "NUMBA_ENABLE_CUDASIM is set; the kernels need a real numba.cuda: unset it" in done.stderr
