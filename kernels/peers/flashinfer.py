"""FlashInfer, compiled from its headers by nvcc where it is measured: RoPE on raw keys inside the kernel, and none.

The project has no copy of it and does not depend on it. FLASHINFER names the folder `flashinfer/data` of its package
(the wheel flashinfer-python on PyPI; 0.7.2.post1 was measured). Its kernels here are those that take RoPE, of
FlashAttention 2: decode for one query, else prefill. They rotate all dims in pairs (i, i + hdim / 2), so the dims of q
and k are reordered once, outside the timing, and align the last query with the last key.
"""

import ctypes
import functools
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from ..constants import FREQUENCY_BASE, MUST_BE, require
from ..runtime import cache
from ..runtime.environment import library_folder
from ..version import Problem, Unsupported
from .pytorch import Attention, halves, peer

HDIMS = (64, 128, 256)
SOURCE = Path(__file__).with_suffix(".cu")
INCLUDED = ("include", "cccl/libcudacxx/include", "cccl/cub", "cccl/thrust")  # newer than those of the toolkit
OPTIONS = ("-O3", "-std=c++17", "--expt-relaxed-constexpr", "-shared", "-Xcompiler", "-fPIC", "-cudart", "static")
WORKSPACE_BYTES = 1 << 25
LIBRARY, MACROS = "FlashInfer", ("HDIM", "ROPE", "CAUSAL", "PROMPT")
TAKES = "{kind} is {needed}; FlashInfer takes {allowed}"


def _found() -> tuple[str, Path]:
    """nvcc, and the folder of the headers. Raises: Unsupported, saying what is missing."""
    folder, nvcc = library_folder("FLASHINFER"), shutil.which("nvcc")
    if folder is None or nvcc is None:
        missing = "their folder in FLASHINFER" if folder is None else "nvcc on the PATH"
        raise Unsupported("library", "FlashInfer", missing, "{needed} is compiled from its headers: set {allowed}")
    if not (folder / "include/flashinfer").is_dir():
        template = "FLASHINFER is {needed}, which has no {allowed}"
        raise Unsupported("library", str(folder), "include/flashinfer", template)
    return nvcc, folder


def compiled(arch: str, **macros: int) -> bytes:
    """The library of `flashinfer.cu` for an architecture such as "sm_90", from the cache if it was compiled before.

    Raises: RuntimeError with what nvcc says.
    """
    nvcc, folder = _found()
    options = (*OPTIONS, f"-arch={arch}", *(f"-D{name}={value}" for name, value in macros.items()))
    headers = sorted((folder / "include/flashinfer/attention").glob("*.cuh"))
    known = hashlib.sha256(repr(options).encode() + b"".join(path.read_bytes() for path in (SOURCE, *headers)))

    def make() -> bytes:
        with tempfile.TemporaryDirectory() as made:
            command = [nvcc, *options, *(f"-I{folder / each}" for each in INCLUDED), str(SOURCE), "-o", f"{made}/it.so"]
            said = subprocess.run(command, capture_output=True, text=True)
            if said.returncode:
                raise RuntimeError(f"nvcc cannot compile FlashInfer: {said.stderr.strip()[:500]}")
            return Path(made, "it.so").read_bytes()

    return cache.load_or_make(known.hexdigest(), ".so", make)


def library_of(problem: Problem) -> tuple[int, ...]:
    """The values of MACROS that a problem needs."""
    prompt = problem.seq_q > 1
    return problem.hdim, int(problem.family == "rope"), int(problem.causal and prompt), int(prompt)


@functools.cache
def _loaded(arch: str, *values: int) -> Callable[..., int]:
    library = compiled(arch, **dict(zip(MACROS, values)))
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(library)
        file.flush()
        return ctypes.CDLL(file.name).attend


def _flashinfer(problem: Problem) -> Attention:
    heads, seq_q, hdim = problem.q_shape[1:]
    require(problem.dtype == "float16", "dtype", problem.dtype, "float16", TAKES)
    require(hdim in HDIMS, "hdim", hdim, ", ".join(map(str, HDIMS)), TAKES)
    rope = problem.family == "rope"
    rotates = "rotary_dim is {needed} and hdim {allowed}; FlashInfer rotates all dims"
    require(not rope or problem.rotary_dim == hdim, "rotary_dim", problem.rotary_dim, hdim, rotates)
    require(problem.batch == 1, "batch", problem.batch, 1, TAKES)
    last = problem.seq_k - seq_q
    require(problem.q_offset == last or not (rope or problem.causal), "q_offset", problem.q_offset, last, MUST_BE)
    _found()
    sizes = tuple(map(ctypes.c_int, (heads, problem.kv_heads, seq_q, problem.seq_k)))
    scalars = ctypes.c_float(problem.softmax_scale), ctypes.c_float(FREQUENCY_BASE)
    kept: Any = WeakTensorKeyDictionary()

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if k not in kept:
            workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=q.device)
            kept[k] = (*((halves(x) if rope else x) for x in (q, k)), workspace)
        arch = "sm_{}{}".format(*torch.cuda.get_device_capability(q.device))
        attend = _loaded(arch, *library_of(problem))
        turned_q, turned_k, workspace = kept[k]
        out = torch.empty((seq_q, heads, hdim), dtype=q.dtype, device=q.device)
        given = (ctypes.c_void_p(x.data_ptr()) for x in (turned_q, turned_k, v, out, workspace))
        stream = ctypes.c_void_p(torch.cuda.current_stream(q.device).cuda_stream)
        if code := attend(*given, *sizes, *scalars, stream):
            raise RuntimeError(f"FlashInfer refuses the call: error {code}")
        return out.transpose(0, 1)[None]

    return call


peer("flashinfer_rope", "rope", "FlashInfer, RoPE inside the kernel", _flashinfer, source=LIBRARY, beyond=True)
peer("flashinfer", "attention", "FlashInfer", _flashinfer, source=LIBRARY, beyond=True)
