"""Which kernel takes a prompt in half precision, and its plan over named buffers."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...constants import MUST_BE, require
from ...limits import EMULATED_TARGET, capability
from ...tensor_map import MAP_BYTES, TensorMap
from ...version import Buffer, Launch, Plan, Problem
from ..decode.choose import HALF_SINCE, OVERLAP_SINCE
from ..decode.plan import H100_SMS, Call, embedding_of, given_buffers, strides_of
from .mma import prompt_kernel
from .rotate import rotate_kernel
from .shapes import SLAB_DIMS, PromptShape, WgmmaShape
from .wgmma import THREADS, wgmma_kernel

MOST_DIMS, DIMS_STEP = 256, 16
MOST_KEY_DIMS = 1 << 17  # keys by dims that mma.sync takes


def require_prompt(dtype: str, hdim: int, rotary_dim: int, half_split: bool, target: str) -> None:
    """Raises: Unsupported for what no kernel of prompts takes."""
    whole = hdim % DIMS_STEP == 0 and hdim <= MOST_DIMS
    require(whole, "hdim", hdim, f"a multiple of {DIMS_STEP} up to {MOST_DIMS} in half precision", MUST_BE)
    require(dtype in ("float16", "bfloat16"), "dtype", dtype, "float16 or bfloat16")
    if half_split:
        require(rotary_dim % 8 == 0, "rotary_dim", rotary_dim, "a multiple of 8 where half-split", MUST_BE)
    template = "half precision needs compute capability {allowed}, this GPU has {needed}"
    require(capability(target) >= HALF_SINCE, "capability", target, "8.0", template)


def shape_of(dtype: str, hdim: int, seq_k: int, embedding: str, half_split: bool, target: str) -> PromptShape:
    """Where all keys fit into two tiles, both are asked for at once; else two of three, or one of two.

    Compute capability 8.0 has 163 KB of shared memory a block; 8.6, 8.9 and 12.0 have 99.
    """
    large = (9, 0) <= capability(target) < (12, 0)
    small = capability(target) > (8, 0) and not large
    overlap = capability(target) >= OVERLAP_SINCE
    how: dict[str, Any] = {"embedding": embedding, "half_split": half_split, "overlap": overlap}
    shape = PromptShape(dtype, hdim, key_warps=2 if small else 4, **how)
    if seq_k <= 2 * shape.tile_keys:
        return replace(shape, stages=2, ahead=2)
    return shape if large else replace(shape, stages=2, ahead=1)


def wgmma_shape(dtype: str, hdim: int, embedding: str, half_split: bool) -> WgmmaShape:
    """More than 128 dims leave registers and shared memory for tiles of 96 keys, more than 192 for 64."""
    tile_keys = 128 if hdim <= 128 else 96 if hdim <= 192 else 64
    return WgmmaShape(dtype, hdim, tile_keys, embedding=embedding, half_split=half_split)


@dataclass(frozen=True)
class Prompt(Call):
    """As `Call`; the scale is positive."""

    shape: PromptShape | WgmmaShape

    @property
    def grid(self) -> tuple[int, int, int]:
        """As `phases.tile_of` has it."""
        heads = (self.kv_heads, self.tiles) if self.causal else (self.tiles, self.kv_heads)
        return (*heads, self.batch)

    def launches(self, args: tuple[Any, ...], seq_k: int) -> tuple[Launch, ...]:
        """On wgmma, the launch that rotates keys comes first, where they are to be rotated."""
        grid, layout = self.grid, self.shape.layout
        taken = self.rotated(args, "k_rotated", seq_k) if self.shape.rotates and args else args
        if isinstance(self.shape, PromptShape):
            made = Launch(prompt_kernel(self.shape), grid, (self.shape.threads,), taken, layout)
        else:
            made = Launch(wgmma_kernel(self.shape), grid, (THREADS,), (*taken, "k_map", "v_map"), layout)
        if not self.shape.rotates:
            return (made,)
        kernel, rows = rotate_kernel(self.shape)
        blocks = (-(-seq_k // rows), self.kv_heads, self.batch)
        return Launch(kernel, blocks, (self.shape.threads,), (*args, "k_rotated")), made

    def rotated(self, args: tuple[Any, ...], keys: Any, seq_k: int) -> tuple[Any, ...]:
        """The arguments with `keys`, which have no gaps, in place of those that `args` begin with."""
        strides = strides_of((self.batch, self.kv_heads, seq_k, self.shape.hdim))
        return (args[0], keys, *args[2:7], *strides, *args[10:])

    def tensor_map(self, name: str, seq_k: int, strides: tuple[int, ...]) -> TensorMap:
        """Of keys or values in the buffer `name`, whose (batch, head, row) strides count elements."""
        size = self.shape.element.size
        sizes = (self.shape.hdim, seq_k, self.kv_heads, self.batch)
        box = (SLAB_DIMS, self.shape.tile_keys, 1, 1)
        return TensorMap(name, sizes, tuple(size * stride for stride in strides[::-1]), box)


def pays_on_wgmma(call: Prompt, seq_k: int, sms: int) -> bool:
    """Whether a call planned on mma.sync is better off on wgmma, measured on an H100 (90 shapes of 64 to 4096 keys).

    Tiles of 32 queries make four times the blocks: good until they fill the card.
    """
    blocks = call.tiles * call.kv_heads * call.batch
    few_keys = call.shape.dims == 64 or seq_k * call.shape.dims <= MOST_KEY_DIMS
    return blocks > sms or not few_keys


def chosen(
    dtype: str, hdim: int, embedding: str, half_split: bool, seq_k: int, target: str, sms: int, *how: Any
) -> Prompt:
    """The call by the kernel that the rule takes; `how` are the fields of `Prompt` behind its shape."""
    call = Prompt(shape_of(dtype, hdim, seq_k, embedding, half_split, target), *how)
    if target == "sm_90" and not call.by_length and pays_on_wgmma(call, seq_k, sms):
        call = replace(call, shape=wgmma_shape(dtype, hdim, embedding, half_split))
    return call


def prompt_plan(
    problem: Problem,
    target: str = EMULATED_TARGET,
    half_split: bool = False,
    tables: tuple[np.ndarray, np.ndarray] | None = None,
    positions: np.ndarray | None = None,
    lengths: np.ndarray | None = None,
    capacity: int | None = None,
    wgmma: bool | None = None,
    **fields: Any,
) -> Plan:
    """Plan a prompt in half precision, on mma.sync or wgmma, by default as the rule says for an H100.

    Further arguments are those of `decode_plan`. Raises: Unsupported.
    """
    batch, heads, seq_q, hdim = problem.q_shape
    kv_heads, rotary_dim = problem.kv_heads, problem.rotary_dim
    require(problem.cache == "none", "cache", problem.cache, "none")
    require_prompt(problem.dtype, hdim, rotary_dim, half_split, target)
    embedding = embedding_of(problem.family, rotary_dim, tables is not None, positions is not None)
    halves = half_split and rotary_dim > 0
    how = (batch, heads, kv_heads, seq_q, problem.causal, problem.softmax_scale, lengths is not None)
    of_shape = (problem.dtype, hdim, embedding, halves)
    if wgmma is None:
        call = chosen(*of_shape, problem.seq_k, target, H100_SMS, *how)
    elif wgmma:
        template = "kernels on wgmma need compute capability {allowed}, this GPU has {needed}"
        require(target == "sm_90", "capability", target, "9.0", template)
        template = "sequences have {needed} of their own; kernels on wgmma take {allowed}"
        require(lengths is None, "seq_k", "lengths", "one for all", template)
        call = Prompt(wgmma_shape(*of_shape), *how)
    else:
        call = Prompt(shape_of(problem.dtype, hdim, problem.seq_k, embedding, halves, target), *how)
    shape = replace(call.shape, **fields)
    call = replace(call, shape=shape)
    given = given_buffers(problem, shape, tables, positions, lengths, capacity)
    buffers, strides = given.buffers, given.strides
    args = given.arguments(call.sizes(problem.seq_k, problem.q_offset, given.named("lengths")), "q", "q")
    keys = ("k", strides[1])
    if shape.rotates:
        buffers["k_rotated"] = Buffer(problem.kv_shape, problem.dtype)
        keys = ("k_rotated", strides_of(problem.kv_shape))
    if isinstance(shape, WgmmaShape):
        for name, of in (("k_map", keys), ("v_map", ("v", strides[2]))):
            buffers[name] = Buffer((MAP_BYTES // 4,), "int32", tensor_map=call.tensor_map(of[0], problem.seq_k, of[1]))
    return Plan(problem, buffers, call.launches(args, problem.seq_k))
