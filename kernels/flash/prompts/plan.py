"""Which kernel takes a prompt in half precision, and its plan over named buffers."""

from dataclasses import dataclass, replace
from typing import Any

from ...constants import require
from ...limits import capability
from ...tensor_map import TensorMap
from ...version import Buffer, Launch, Plan, Problem
from ..call import Call, Request, flash_plan, strides_of
from ..decode.plan import OVERLAP_SINCE, require_half
from ..shapes import SLAB_DIMS, PromptShape, WgmmaShape
from .mma import prompt_kernel
from .rotate import rotate_kernel
from .wgmma import THREADS, wgmma_kernel

MOST_DIMS, DIMS_STEP = 256, 16
MOST_KEY_DIMS = 1 << 17  # keys by dims that mma.sync takes
MOST_BLOCKS = 65_535  # of a grid's second and third dim


def require_prompt(request: Request) -> None:
    """Raises: Unsupported for what no kernel of prompts takes."""
    request.require(" in half precision", DIMS_STEP, MOST_DIMS, 8)
    require(request.problem.dtype in ("float16", "bfloat16"), "dtype", request.problem.dtype, "float16 or bfloat16")
    require_half(request.target)


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

    name, by_strides = "prompt", True
    shape: PromptShape | WgmmaShape

    @property
    def grid(self) -> tuple[int, int, int]:
        """As `phases.tile_of` has it."""
        p = self.of.problem
        return (*((p.kv_heads, self.tiles) if p.causal else (self.tiles, p.kv_heads)), p.batch)

    def launches(self, args: tuple[Any, ...], seq_k: int) -> tuple[Launch, ...]:
        """On wgmma, the launch that rotates keys comes first, where they are to be rotated."""
        grid, layout = self.grid, self.shape.layout
        taken = self.rotated(args, "k_rotated", seq_k) if self.shape.rotates else args
        if isinstance(self.shape, PromptShape):
            made = Launch(prompt_kernel(self.shape), grid, (self.shape.threads,), taken, layout)
        else:
            made = Launch(wgmma_kernel(self.shape), grid, (THREADS,), (*taken, "k_map", "v_map"), layout)
        if not self.shape.rotates:
            return (made,)
        kernel, rows = rotate_kernel(self.shape)
        blocks = (-(-seq_k // rows), *self.of.problem.kv_shape[1::-1])
        return Launch(kernel, blocks, (self.shape.threads,), (*args, "k_rotated")), made

    def keys(self, seq_k: int) -> tuple[int, int, int, int]:
        """The shape of rotated keys."""
        p = self.of.problem
        return p.batch, p.kv_heads, seq_k, p.hdim

    def rotated(self, args: tuple[Any, ...], keys: Any, seq_k: int) -> tuple[Any, ...]:
        """The arguments with `keys`, which have no gaps, in place of those that `args` begin with."""
        return (args[0], keys, *args[2:7], *strides_of(self.keys(seq_k)), *args[10:])

    def tensor_map(self, name: str, strides: tuple[int, ...], seq_k: int) -> TensorMap:
        """Of keys or values in the buffer `name`, whose (batch, head, row) strides count elements."""
        size, sizes = self.shape.element.size, self.keys(seq_k)
        box = (SLAB_DIMS, self.shape.tile_keys, 1, 1)
        # A dim of one may have any stride, which a map may not.
        apart = [given if count > 1 else own for count, given, own in zip(sizes, strides, strides_of(sizes))]
        return TensorMap(name, sizes[::-1], tuple(size * stride for stride in apart[::-1]), box)

    def at(self, seq_k: int, k: tuple[int, ...], v: tuple[int, ...]) -> "Prompt":
        """By the kernel that the rule takes for so many keys; no map describes values that are expanded."""
        request = replace(self.of, problem=replace(self.of.problem, seq_k=seq_k))
        mapped = all(size == 1 or stride for size, stride in zip(self.keys(seq_k), v))
        return prompt_call(request) if mapped else on_mma(request)

    def buffers(self, seq_k: int) -> dict[str, Buffer]:
        return {"k_rotated": Buffer(self.keys(seq_k), self.shape.dtype)} if self.shape.rotates else {}

    def maps(self, seq_k: int, k: tuple[int, ...], v: tuple[int, ...]) -> dict[str, TensorMap]:
        if not isinstance(self.shape, WgmmaShape):
            return {}
        keys = ("k_rotated", strides_of(self.keys(seq_k))) if self.shape.rotates else ("k", k)
        return {"k_map": self.tensor_map(*keys, seq_k), "v_map": self.tensor_map("v", v, seq_k)}


def pays_on_wgmma(call: Prompt) -> bool:
    """Whether a call planned on mma.sync is better off on wgmma, measured on an H100 (90 shapes of 64 to 4096 keys).

    Tiles of 32 queries make four times the blocks: good until they fill the card.
    """
    few_keys = call.shape.dims == 64 or call.of.problem.seq_k * call.shape.dims <= MOST_KEY_DIMS
    return call.tiles * call.of.shared_heads > call.of.sms or not few_keys


def require_launch(call: Prompt) -> None:
    """Raises: Unsupported for a scale that the kernels do not take, or more blocks than a grid has."""
    p, scale = call.of.problem, call.of.scale
    template = "scale is {needed}; in half precision kernels for prompts take {allowed}"
    require(scale > 0, "scale", scale, "one above 0", template)
    blocks = max(p.batch, p.kv_heads, call.tiles if p.causal else 1)
    template = "the call has {needed:,} blocks in one dim of its grid; a launch takes {allowed:,}"
    require(blocks <= MOST_BLOCKS, "grid", blocks, MOST_BLOCKS, template)


def on_mma(request: Request) -> Prompt:
    """The call on mma.sync. Raises: Unsupported."""
    require_prompt(request)
    p = request.problem
    return Prompt(shape_of(p.dtype, p.hdim, p.seq_k, *request.how), request)


def on_wgmma(request: Request) -> Prompt:
    """Raises: Unsupported."""
    require_prompt(request)
    template = "kernels on wgmma need compute capability {allowed}, this GPU has {needed}"
    require(request.target == "sm_90", "capability", request.target, "9.0", template)
    template = "sequences have {needed} of their own; kernels on wgmma take {allowed}"
    require(not request.by_length, "seq_k", "lengths", "one for all", template)
    p = request.problem
    return Prompt(wgmma_shape(p.dtype, p.hdim, request.embedding, request.half_split), request)


def prompt_call(request: Request) -> Prompt:
    """The call by the kernel that the rule takes. Raises: Unsupported."""
    call = on_mma(request)
    require_launch(call)
    wgmma = request.target == "sm_90" and not request.by_length and pays_on_wgmma(call)
    return on_wgmma(request) if wgmma else call


def prompt_plan(problem: Problem, *args: Any, wgmma: bool | None = None, **options: Any) -> Plan:
    """Plan a prompt in half precision, on mma.sync or wgmma, by default as the rule says for an H100.

    Further arguments are those of `flash_plan`. Raises: Unsupported.
    """
    choose = prompt_call if wgmma is None else on_wgmma if wgmma else on_mma
    return flash_plan(choose, problem, *args, **options)
