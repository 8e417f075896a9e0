"""Which kernel takes a prompt in half precision, how its keys are split, and its plan over named buffers."""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ...constants import require
from ...limits import capability, limits_of
from ...tensor_map import TensorMap
from ...version import Buffer, Kernel, Launch, Plan, Problem, Unsupported
from ..call import NAMES, Call, Request, flash_plan, is_positive, strides_of
from ..combine import launch_combine, shapes
from ..decode.plan import MOST_QUERIES, OVERLAP_SINCE, require_half
from ..shapes import SLAB_DIMS, PersistentShape, PromptShape, WgmmaShape
from .mma import prompt_kernel
from .persistent import persistent_kernel
from .rotate import rotate_kernel
from .wgmma import THREADS, wgmma_kernel

MOST_DIMS, DIMS_STEP = 256, 16
MOST_KEY_DIMS = 1 << 17  # keys by dims that mma.sync takes
MANY_OUTPUTS = 512  # an SM, which `combine` adds up row by row
MOST_ROWS = {64: 8, 128: 8, 256: 4}  # of a KV head, by dims, that up to 8 queries are decoded with
# Microseconds on an H200, fitted to 617 calls of 9 to 512 queries and 256 to 16,384 keys: what these choose took 0.4 %
# longer than the fastest kernel, and up to 19 %. A step is 16,384 elements of keys on mma.sync, on wgmma 128 by 128.
LAUNCH, ROTATED, COMBINED = 1.0, 0.45, 0.55  # of a further launch; a MB of keys or of parts
WGMMA, WGMMA_STEP = 5.0, 1.5  # of a wave of blocks
MMA, MMA_ROW, STEP, STEP_ROW, STEP_ROTATED = 3.2, 1 / 56, 0.95, 0.013, 1.1  # and by rows of a tile
MOST_STAYING_DIMS = 192  # of blocks that stay
MORE_TILES = 1.25  # by how much tiles of one head may outnumber those that heads share: measured at 1.2, causal


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


def split_shape(dtype: str, hdim: int, rows: int, embedding: str, half_split: bool, target: str) -> PromptShape:
    """As `shape_of`, with split keys, for `rows` rows of a KV head: up to 64 of them read, and rotate, a key once.

    With 16 rows an SM holds two blocks. Above 128 dims a warp would not have the 16 keys of a product then.
    """
    large = (9, 0) <= capability(target) < (12, 0)
    small = capability(target) > (8, 0) and not large
    full = hdim > 128 and (not large or embedding not in ("none", "alibi", "rates"))  # shared memory, or registers
    tile = 16 if rows <= 16 and hdim <= 128 else 32 if rows <= 32 or small or full else 64
    how: dict[str, Any] = {"embedding": embedding, "half_split": half_split, "split": True}
    warps, (stages, ahead) = 2 if tile == 64 or (small and tile == 32) else 4, (3, 2) if large else (2, 1)
    return PromptShape(dtype, hdim, tile, warps, stages, ahead, overlap=capability(target) >= OVERLAP_SINCE, **how)


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
    def in_front(self) -> bool:
        """Whether a launch in front rotates the keys."""
        return self.shape.rotates

    def grid(self, seq_k: int) -> tuple[int, int, int]:
        """As `phases.tile_of` has it."""
        p = self.of.problem
        return (*((p.kv_heads, self.tiles) if p.causal else (self.tiles, p.kv_heads)), p.batch)

    @property
    def room(self) -> int:
        """Blocks that the card holds at once; a thread has up to 255 registers."""
        limits, shape = limits_of(self.of.target), self.shape
        by_shared = limits.shared_bytes // (shape.layout.nbytes + limits.reserved_shared_bytes)
        return self.of.sms * max(min(by_shared, 256 // shape.threads), 1)

    @property
    def us(self) -> float:
        """An estimate of the time of a call."""
        p, shape, blocks = self.of.problem, self.shape, self.of.shared_heads * self.tiles
        splits = self.splits(p.seq_k)[0]
        steps = -(-blocks * splits // self.room) * -(-p.seq_k // (splits * shape.tile_keys)) * shape.tile_keys / 128
        if isinstance(shape, WgmmaShape):
            us = WGMMA + WGMMA_STEP * steps * (shape.dims + SLAB_DIMS) / 192
        else:
            step = STEP + STEP_ROW * shape.rows + STEP_ROTATED * (shape.rotates and shape.split)
            us = MMA + MMA_ROW * shape.rows + step * steps * shape.dims / 128
        if self.in_front:
            us += LAUNCH + ROTATED * self.of.shared_heads * p.seq_k * p.hdim * shape.element.size / 1e6
        return us + (splits > 1) * (LAUNCH + COMBINED * splits * math.prod(p.q_shape) * 4 / 1e6)

    def attention(self, taken: tuple[Any, ...]) -> tuple[Kernel, int, tuple[Any, ...]]:
        """The kernel that attends, the threads of its blocks, and its arguments."""
        if isinstance(self.shape, PromptShape):
            return prompt_kernel(self.shape), self.shape.threads, taken
        return wgmma_kernel(self.shape), THREADS, (*taken, "k_map", "v_map")

    def launches(self, args: tuple[Any, ...], seq_k: int) -> tuple[Launch, ...]:
        """The launch that rotates keys comes first, where there is one."""
        attend, threads, taken = self.attention(self.rotated(args, "k_rotated", seq_k) if self.in_front else args)
        made = Launch(attend, self.grid(seq_k), (threads,), taken, self.shape.layout)
        if not self.in_front:
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
        """By the kernel that takes so many keys soonest; no map describes keys or values that are expanded."""
        request = replace(self.of, problem=replace(self.of.problem, seq_k=seq_k))
        read = (v,) if self.shape.rotates else (k, v)  # rotated keys lie elsewhere
        mapped = all(size == 1 or stride for each in read for size, stride in zip(self.keys(seq_k), each))
        return prompt_call(request, mapped)

    def buffers(self, seq_k: int) -> dict[str, Buffer]:
        return {"k_rotated": Buffer(self.keys(seq_k), self.shape.dtype)} if self.in_front else {}

    def maps(self, seq_k: int, k: tuple[int, ...], v: tuple[int, ...]) -> dict[str, TensorMap]:
        if not isinstance(self.shape, WgmmaShape):
            return {}
        keys = ("k_rotated", strides_of(self.keys(seq_k))) if self.in_front else ("k", k)
        return {"k_map": self.tensor_map(*keys, seq_k), "v_map": self.tensor_map("v", v, seq_k)}


@dataclass(frozen=True)
class Persistent(Prompt):
    """As `Prompt` on wgmma, by no more blocks than the card has SMs; a tile has queries of one head."""

    name = "prompt_persistent"
    shape: PersistentShape

    @property
    def tiles(self) -> int:
        """Of a query head."""
        return -(-self.of.problem.seq_q // self.shape.rows)

    def grid(self, seq_k: int) -> tuple[int, int, int]:
        p = self.of.problem
        return min(self.tiles * p.heads * p.batch, self.of.sms), 1, 1

    @property
    def us(self) -> float:
        """That of a block a tile, which is longer."""
        return on_wgmma(self.of).us

    def attention(self, taken: tuple[Any, ...]) -> tuple[Kernel, int, tuple[Any, ...]]:
        return persistent_kernel(self.shape), THREADS, (*taken, "k_map", "v_map", self.of.problem.batch)


@dataclass(frozen=True)
class Split(Prompt):
    """As `Prompt`, with split keys, of which `combine` adds up the parts."""

    name = "prompt_split"

    @property
    def in_front(self) -> bool:
        return self.shape.rotates and not self.shape.in_block

    @property
    def many(self) -> bool:
        """Whether `combine` takes several rows a block."""
        return math.prod(self.of.problem.q_shape) > MANY_OUTPUTS * self.of.sms

    def splits(self, seq_k: int) -> tuple[int, int]:
        """As many as one wave of blocks takes, or fewer that leave no block more tiles of keys."""
        tiles, room = -(-seq_k // self.shape.tile_keys), self.room // (self.of.shared_heads * self.tiles)
        each = -(-tiles // max(room, 1))
        return -(-tiles // each), each * self.shape.tile_keys

    def parts(self, seq_k: int) -> int:
        """Parts to combine; 0 where a kernel on mma.sync stores the output, of keys that are not split."""
        splits = self.splits(seq_k)[0]
        return splits if splits > 1 or isinstance(self.shape, WgmmaShape) else 0

    def grid(self, seq_k: int) -> tuple[int, int, int]:
        return self.splits(seq_k)[0], self.of.problem.kv_heads * self.tiles, self.of.problem.batch

    def buffers(self, seq_k: int) -> dict[str, Buffer]:
        p, count = self.of.problem, self.parts(seq_k)
        parts = shapes(p.batch * p.heads * p.seq_q, p.hdim, count) if count else {}
        return super().buffers(seq_k) | {name: Buffer(shape) for name, shape in parts.items()}

    def launches(self, args: tuple[Any, ...], seq_k: int) -> tuple[Launch, ...]:
        """Those of `Prompt` and, where keys are split, the one that combines."""
        made = self._with_combine(args, seq_k)
        return made if self.parts(seq_k) else made[:-1]

    def all_launches(self, seq_k: int) -> tuple[Launch, ...]:
        return self._with_combine(NAMES, seq_k)

    def _with_combine(self, args: tuple[Any, ...], seq_k: int) -> tuple[Launch, ...]:
        p, splits = self.of.problem, self.splits(seq_k)[0]
        combine = launch_combine(p.dtype, p.q_shape, splits, args[13:16], self.shape.overlap, self.many)
        return *super().launches(args, seq_k), combine


class Packed(Split):
    """As `Split`, of up to 8 queries: on mma.sync for any number of keys, as these grow from call to call."""

    by_strides, many = False, False  # kernels do not depend on the batch either

    def at(self, seq_k: int, k: tuple[int, ...], v: tuple[int, ...]) -> "Packed":
        return self

    def alike(self, seq_k: int) -> int:
        return self.splits(seq_k)[0]


def pays_on_wgmma(call: Prompt) -> bool:
    """Whether a call planned on mma.sync is better off on wgmma, measured on an H100 (90 shapes of 64 to 4096 keys).

    Tiles of 32 queries make four times the blocks: good until they fill the card.
    """
    few_keys = call.shape.dims == 64 or call.of.problem.seq_k * call.shape.dims <= MOST_KEY_DIMS
    return call.tiles * call.of.shared_heads > call.of.sms or not few_keys


def require_scale(scale: float) -> None:
    """Raises: Unsupported for a scale that the kernels do not take: they mask a score before they scale it."""
    template = "scale is {needed}; in half precision kernels for prompts take {allowed}"
    require(is_positive(scale), "scale", scale, "one that is above 0 in float32", template)


def on_mma(request: Request) -> Prompt:
    """The call on mma.sync. Raises: Unsupported."""
    require_prompt(request)
    p = request.problem
    return Prompt(shape_of(p.dtype, p.hdim, p.seq_k, *request.how), request)


def require_wgmma(request: Request) -> None:
    """Raises: Unsupported for what no kernel of prompts on wgmma takes."""
    require_prompt(request)
    template = "kernels on wgmma need compute capability {allowed}, this GPU has {needed}"
    require(request.target == "sm_90", "capability", request.target, "9.0", template)
    template = "sequences have {needed} of their own; kernels on wgmma take {allowed}"
    require(not request.by_length, "seq_k", "lengths", "one for all", template)


def on_wgmma(request: Request) -> Prompt:
    """Raises: Unsupported."""
    require_wgmma(request)
    p = request.problem
    return Prompt(wgmma_shape(p.dtype, p.hdim, request.embedding, request.half_split), request)


def persistent_call(request: Request) -> Persistent:
    """Raises: Unsupported."""
    require_wgmma(request)
    p = request.problem
    template = "{needed} dims leave no room for two tiles of queries; blocks that stay take {allowed}"
    require(p.hdim <= MOST_STAYING_DIMS, "hdim", p.hdim, MOST_STAYING_DIMS, template)
    tile_keys = 128 if p.hdim <= 128 else 80
    how: dict[str, Any] = {"embedding": request.embedding, "half_split": request.half_split}
    return Persistent(PersistentShape(p.dtype, p.hdim, tile_keys, **how), request)


def pays_to_stay(call: Persistent) -> bool:
    """Whether tiles of one head are hardly more than those that heads share."""
    p = call.of.problem
    return call.tiles * p.heads <= MORE_TILES * on_wgmma(call.of).tiles * p.kv_heads


def split_on_mma(request: Request) -> Split:
    """As `on_mma`, with split keys."""
    require_prompt(request)
    p = request.problem
    kind = Packed if p.seq_q <= MOST_QUERIES else Split
    return kind(split_shape(p.dtype, p.hdim, request.rows, *request.how), request)


def split_on_wgmma(request: Request) -> Split:
    """As `on_wgmma`, with split keys."""
    call = on_wgmma(request)
    return Split(replace(call.shape, split=True), request)


def maps(request: Request) -> bool:
    """Whether kernels on wgmma take a request, whose keys and values have maps."""
    return request.target == "sm_90" and not request.by_length


def whole_call(request: Request, mapped: bool = True) -> Prompt:
    """The call of a block a tile of queries. Raises: Unsupported."""
    require_scale(request.scale)
    call = on_mma(request)
    return on_wgmma(request) if mapped and maps(request) and pays_on_wgmma(call) else call


def split_calls(request: Request, mapped: bool = True) -> list[Split]:
    """Those with split keys. Raises: Unsupported."""
    call = split_on_mma(request)
    both = mapped and maps(request) and not isinstance(call, Packed)
    return [call, split_on_wgmma(request)] if both else [call]


def split_call(request: Request) -> Split:
    """The fastest call with split keys. Raises: Unsupported."""
    call = min(split_calls(request), key=lambda each: each.us)
    require_scale(request.scale)
    return call


def prompt_call(request: Request, mapped: bool = True) -> Prompt:
    """The fastest call: split keys, blocks that stay, or a block a tile; `mapped`: whether maps describe its tensors.

    Raises: Unsupported, also for up to 8 queries with no more rows of a KV head than decode takes.
    """
    p = request.problem
    if p.seq_q <= MOST_QUERIES:
        packed = split_call(request)
        most = MOST_ROWS[packed.shape.dims]
        template = "{needed} rows of queries share a KV head; decode takes up to {allowed}"
        require(request.rows > most, "seq_q", request.rows, most, template)
        return packed
    split = (call for call in split_calls(request, mapped) if call.splits(p.seq_k)[0] > 1)
    whole = whole_call(request, mapped)
    if isinstance(whole.shape, WgmmaShape):
        with suppress(Unsupported):
            stays = persistent_call(request)
            whole = stays if pays_to_stay(stays) else whole
    return min([whole, *split], key=lambda each: each.us)


def prompt_plan(
    problem: Problem, *args: Any, wgmma: bool | None = None, split: bool = False, **options: Any
) -> Plan:
    """Plan a prompt in half precision, with split keys or without, on mma.sync or wgmma, by default as is faster.

    Further arguments are those of `flash_plan`. Raises: Unsupported.
    """
    of_one = (split_on_mma, split_on_wgmma) if split else (on_mma, on_wgmma)
    choose: Callable[[Request], Call] = (split_call if split else whole_call) if wgmma is None else of_one[wgmma]
    return flash_plan(choose, problem, *args, **options)
