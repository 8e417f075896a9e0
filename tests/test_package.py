"""The package that users install: the folder kernels/ as `fused_pe`, used without a GPU and without this repository."""

import compileall
import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels import VERSIONS, rope_attention
from kernels.runtime import cache, compile
from kernels.runtime.identity import kernel_identity, source_hash
from kernels.version import Problem
from tests.wheel import ROOT, unpacked

KERNELS = ROOT / "kernels"
MAIN = Problem("rope", 1, 4, seq_q=64, hdim=512, rotary_dim=128)
USE = """
import json, sys, warnings
from importlib.util import find_spec
from pathlib import Path

import fused_pe
loaded, compiled = set(sys.modules), Path(sys.argv[1]).exists()

import torch
from fused_pe.runtime.identity import kernel_identity, source_hash

initialized = torch.cuda.is_initialized()
q, k, v = (torch.linspace(0, 1, heads * 24).sin().view(1, heads, 3, 8) for heads in (4, 2, 2))
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    out = fused_pe.rope_attention(q, k, v, interleaved=False, causal=True)
plan = fused_pe.version("rope_v8")(fused_pe.Problem("rope", 1, 4, seq_q=64, hdim=512, rotary_dim=128))
(launch,) = plan.launches
print(json.dumps({
    "file": fused_pe.__file__, "loaded": sorted(loaded), "idle": not (compiled or initialized),
    "versions": list(fused_pe.VERSIONS), "kernels": find_spec("kernels") is not None,
    "source": source_hash(fused_pe.version("rope_v8")), "identity": kernel_identity(launch.kernel),
    "out": out.tolist(), "warned": [str(each.message) for each in warned],
}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def used(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The output of a program that imports the installed package, without a GPU and without this repository."""
    folder = tmp_path_factory.mktemp("elsewhere")
    environment = {**os.environ, "PYTHONPATH": str(installed), "CUDA_VISIBLE_DEVICES": ""}
    environment["FUSED_PE_CACHE"] = str(folder / "cache")
    command = [sys.executable, "-c", USE, str(folder / "cache")]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_module_of_kernels_is_installed_as_fused_pe_and_nothing_else(installed: Path) -> None:
    (metadata,) = installed.glob("*.dist-info")
    assert {path.name for path in installed.iterdir()} == {"fused_pe", metadata.name}
    modules = {path.relative_to(KERNELS) for path in KERNELS.rglob("*.py")}
    assert {path.relative_to(installed / "fused_pe") for path in installed.rglob("*.py")} == modules
    assert (installed / "fused_pe" / "py.typed").exists()  # which type checkers look for


def said_in_the_root(program: str, **environment: str) -> str:
    """What Python says at last when it runs a program in the root of the repository, where `kernels` is the folder."""
    here = {**os.environ, **environment}
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=here, capture_output=True, text=True)
    return (done.stdout + done.stderr).splitlines()[-1]


def test_folder_imported_in_place_of_another_package_names_itself(tmp_path: Path) -> None:
    """`import transformers` in the root asks for Hugging Face's `kernels`."""
    remedy = f"this is {KERNELS}; if another package called kernels is meant, run Python in another folder, or with -P"
    without = "import sys; sys.modules['numba'] = None; import kernels"
    assert said_in_the_root(without) == f"ModuleNotFoundError: numba is not installed, which the kernels need; {remedy}"
    theirs = tmp_path / "kernels-9.9.dist-info"
    theirs.mkdir()
    (theirs / "METADATA").write_text("Metadata-Version: 2.1\nName: kernels\nVersion: 9.9\n")
    asked = "import kernels; from kernels import runtime, attention; assert not hasattr(kernels, '__version__'); "
    asked += "from kernels import get_kernel"
    assert said_in_the_root(asked, PYTHONPATH=str(tmp_path)) == f"ImportError: no get_kernel in kernels; {remedy}"


def test_installed_package_is_the_repository_s_under_another_name(installed: Path, used: dict[str, Any]) -> None:
    """Same versions, same hashes, same keys of the compile cache: what is recorded of one is of the other."""
    assert Path(used["file"]).is_relative_to(installed) and not used["kernels"]
    assert used["versions"] == list(VERSIONS)
    (launch,) = VERSIONS["rope_v8"](MAIN).launches
    assert used["source"] == source_hash(VERSIONS["rope_v8"])
    assert used["identity"] == kernel_identity(launch.kernel)
    assert used["idle"], "importing it compiles something, or starts the GPU"
    assert {"pandas", "matplotlib", "IPython", "triton", "kernels", "analysis"}.isdisjoint(used["loaded"])


def test_installed_op_computes_what_the_repository_s_does_and_goes_by_its_own_name(used: dict[str, Any]) -> None:
    q, k, v = (torch.linspace(0, 1, heads * 24).sin().view(1, heads, 3, 8) for heads in (4, 2, 2))
    with warnings.catch_warnings(action="ignore"):
        out = rope_attention(q, k, v, interleaved=False, causal=True)
    assert torch.equal(torch.tensor(used["out"]), out)
    (warned,) = used["warned"]
    assert warned.startswith("fused_pe computes this attention in PyTorch: ")


def test_environments_with_other_compilers_share_no_ptx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The assembler of an older CUDA rejects the PTX of a newer one."""
    monkeypatch.setattr(cache, "FOLDER", tmp_path)
    monkeypatch.setattr(compile, "_numba_ptx", lambda kernel, target: f"of CUDA {compile.nvjitlink.version()}")
    (launch,) = VERSIONS["rope_v8"](MAIN).launches
    texts = []
    for release in ((1, 0), (1, 5), (1, 0)):  # of no compiler here: what is made up stays apart from what is compiled
        monkeypatch.setattr(compile.nvjitlink, "version", lambda release=release: release)
        texts.append(compile.compile_ptx(launch.kernel))
    assert texts == ["of CUDA (1, 0)", "of CUDA (1, 5)", "of CUDA (1, 0)"]


WITHOUT_SOURCES = """
import sys, warnings

import fused_pe, torch

q = torch.linspace(0, 1, 96).sin().view(1, 4, 3, 8)
with warnings.catch_warnings(action="ignore"):
    assert fused_pe.rope_attention(q, q, q).shape == q.shape
assert fused_pe.warm_up(2, 2, 64, dtype=torch.float16, target="sm_90") == 2
of_log = ("fused_pe.log", "fused_pe.peers", "fused_pe.registry", "fused_pe.flash.versions")
print([name for name in sys.modules if name.startswith(of_log)])
try:
    fused_pe.version("rope_v8")
except ImportError as error:
    print(error)
"""


def test_op_needs_no_source_of_the_log_and_runs_from_a_zip_of_compiled_files(installed: Path, tmp_path: Path) -> None:
    package = shutil.copytree(installed / "fused_pe", tmp_path / "form" / "fused_pe")
    assert compileall.compile_dir(package, quiet=1, legacy=True)
    for source in package.rglob("*.py"):
        source.unlink()
    where = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", package.parent))
    environment = {**os.environ, "PYTHONPATH": str(where), "FUSED_PE_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", WITHOUT_SOURCES]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[]\nthe versions of fused_pe are read from its source files")
    assert len(list((tmp_path / "cache").glob("*/*.cubin"))) == 2
