"""FlashAttention 3 from its package: with RoPE that PyTorch compiles in front, and alone.

The project has no copy of it and does not depend on it. FLASH3 names the folder that its wheel is unpacked in (fa3-fwd
on PyPI; 0.0.3 was measured). It runs on compute capability 9.0, splits keys as its own rule says, and aligns the last
query with the last key. PyTorch compiles faster kernels for RoPE on pairs (i, i + hdim / 2), by up to a fifth on an
H200. So the dims of q and k are reordered once, outside the timing.
"""

import functools
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from ..constants import MUST_BE, require
from ..runtime.environment import library_folder
from ..version import Problem, Unsupported
from .one_graph import AUTOTUNED
from .pytorch import Attention, Tables, compiled, halves, peer, rope_tables

LIBRARY, INTERFACE = "FlashAttention 3", "fa3_fwd_interface"
MOST_DIMS, DIMS_STEP = 256, 8
CAPABILITY = (9, 0)
BY_RULE = 0  # splits of the keys
TAKES = "{kind} is {needed}; FlashAttention 3 takes {allowed}"


def _found() -> Path:
    """The folder of the package. Raises: Unsupported, saying what is missing."""
    folder = library_folder("FLASH3")
    if folder is None:
        raise Unsupported("library", LIBRARY, "FLASH3", "{needed} is no part of the project: set {allowed}")
    if not (folder / f"{INTERFACE}.py").is_file():
        raise Unsupported("library", str(folder), f"{INTERFACE}.py", "FLASH3 is {needed}, which has no {allowed}")
    return folder


@functools.cache
def _loaded(folder: Path) -> Callable[..., torch.Tensor]:
    """Its `flash_attn_func`. Raises: Unsupported where PyTorch cannot load the package."""
    sys.path.append(str(folder))
    try:
        return importlib.import_module(INTERFACE).flash_attn_func
    except (ImportError, OSError) as error:
        raise Unsupported("library", str(folder), error, "{needed} cannot be loaded: {allowed}") from error
    finally:
        sys.path.remove(str(folder))


def _require_hopper(device: torch.device) -> None:
    found = torch.cuda.get_device_capability(device)
    template = "{kind} is {needed[0]}.{needed[1]}; FlashAttention 3 takes {allowed[0]}.{allowed[1]}"
    require(found == CAPABILITY, "capability", found, CAPABILITY, template)


def _attention(problem: Problem) -> Attention:
    hdim, last = problem.hdim, problem.seq_k - problem.seq_q
    require(problem.dtype == "bfloat16", "dtype", problem.dtype, "bfloat16", TAKES)
    allowed = f"a multiple of {DIMS_STEP} up to {MOST_DIMS}"
    require(hdim % DIMS_STEP == 0 and hdim <= MOST_DIMS, "hdim", hdim, allowed, TAKES)
    require(problem.q_offset == last or not problem.causal, "q_offset", problem.q_offset, last, MUST_BE)
    folder = _found()

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Views in its layout, `[batch, seq, heads, hdim]`, of which only the last stride must be 1."""
        _require_hopper(q.device)
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        out = _loaded(folder)(q, k, v, problem.softmax_scale, problem.causal, num_splits=BY_RULE)
        return out.transpose(1, 2)

    return call


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.float().chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(x.dtype)


def _rotate_both(q: torch.Tensor, k: torch.Tensor, tables: Tables) -> tuple[torch.Tensor, torch.Tensor]:
    return _rotated(q, *tables[:2]), _rotated(k, *tables[2:])


def _rope_then_attention(problem: Problem) -> Attention:
    rotates = "rotary_dim is {needed} and hdim {allowed}; this peer rotates all dims"
    require(problem.rotary_dim == problem.hdim, "rotary_dim", problem.rotary_dim, problem.hdim, rotates)
    attend, rotate, tables = _attention(problem), compiled(_rotate_both, AUTOTUNED), rope_tables(problem, torch.float32)
    kept: Any = WeakTensorKeyDictionary()

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if k not in kept:
            kept[k] = halves(q), halves(k)
        rotated_q, rotated_k = rotate(*kept[k], tables(q))
        return attend(rotated_q, rotated_k, v)

    return call


_TITLE = f"Compiled RoPE, autotuned, then {LIBRARY}"
peer("flash3_rope", "rope", _TITLE, _rope_then_attention, source=LIBRARY, beyond=True)
peer("flash3", "attention", LIBRARY, _attention, source=LIBRARY, beyond=True)
