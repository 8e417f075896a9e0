"""Which float32 prompts the kernels of `float32` take, and their launches."""

from dataclasses import dataclass, replace
from typing import Any

from ...constants import require, require_raw_keys
from ...tensor_map import TensorMap
from ...version import Buffer, Launch
from ..atoms.wgmma import GROUP_ROWS
from ..call import Request, is_positive
from ..cluster.wgmma.choose import fastest, takes
from ..shapes import SLAB_DIMS, SPLIT_THREADS, Prompt32Shape
from .float32 import prompt32_kernel
from .plan import Prompt
from .split import split_kernel, tile_count

MOST_DIMS, DIMS_STEP = 256, 16
FAMILIES = ("attention", "rope")
PARTS = ("scales", "q_parts", "k_parts", "v_parts")  # what the first launch fills
LEAST_ROWS, MOST_ROWS = 256, 1 << 22  # the last as a grid has 65,535 blocks in a dim
STARTED, PRODUCT, WIDE = 10_000, 4.6e-3, 1.4  # cycles: of both launches; of a row, key and dim; above 128 dims


def require_prompt32(request: Request) -> None:
    """Raises: Unsupported for what the kernels do not take."""
    request.require("", DIMS_STEP, MOST_DIMS, 4)
    require(request.problem.dtype == "float32", "dtype", request.problem.dtype, "float32")
    require(request.problem.family in FAMILIES, "family", request.problem.family, "attention or rope")
    template = "kernels on wgmma need compute capability {allowed}, this GPU has {needed}"
    require(request.target == "sm_90", "capability", request.target, "9.0", template)


@dataclass(frozen=True)
class Prompt32(Prompt):
    """Calls alike but for how many keys there are, as `plan.Prompt`."""

    name, any_keys, by_strides = "prompt32", False, False
    shape: Prompt32Shape  # type: ignore[assignment]

    @property
    def cycles(self) -> float:
        """An estimate: of all waves of blocks, and, causal, half of the keys of each but the longest."""
        p, shape = self.of.problem, self.shape
        blocks = self.tiles * self.of.shared_heads
        keys = max(blocks / self.of.sms * p.seq_k / 2, p.seq_k) if p.causal else -(-blocks // self.of.sms) * p.seq_k
        return STARTED + PRODUCT * (WIDE if p.hdim > 128 else 1) * keys * shape.rows * shape.dims

    def at(self, seq_k: int, k: tuple[int, ...], v: tuple[int, ...]) -> "Prompt32":
        return self

    def buffers(self, seq_k: int) -> dict[str, Buffer]:
        p, dims = self.of.problem, self.shape.dims
        keys, queries = (p.batch, p.kv_heads, seq_k, dims), (*p.q_shape[:3], dims)
        scales = (p.batch, p.heads + 2 * p.kv_heads, tile_count(self.shape, p.seq_q, seq_k))
        return {name: Buffer(shape) for name, shape in zip(PARTS, (scales, queries, keys, keys))}

    def maps(self, seq_k: int, k: tuple[int, ...] = (), v: tuple[int, ...] = ()) -> dict[str, TensorMap]:
        """Of the parts; the rows of all query heads of a KV head are one after the other."""
        shape, p, made = self.shape, self.of.problem, {}
        for name, rows, box in (("q", self.of.rows, GROUP_ROWS),
                                ("k", seq_k, shape.tile_keys), ("v", seq_k, shape.tile_keys)):  # fmt: skip
            row = 4 * shape.dims
            strides = (row, row * rows, row * rows * p.kv_heads)
            sizes = (2 * shape.dims, rows, p.kv_heads, p.batch)
            made[f"{name}_map"] = TensorMap(f"{name}_parts", sizes, strides, (SLAB_DIMS, box, 1, 1))
        return made

    def launches(self, args: tuple[Any, ...], seq_k: int) -> tuple[Launch, ...]:
        buffers = self.buffers(seq_k)
        args = (*args, *buffers)
        blocks, grid, maps = buffers["scales"].shape[::-1], self.grid(seq_k), self.maps(seq_k)
        attend = Launch(prompt32_kernel(self.shape), grid, (self.shape.threads,), (*args, *maps), self.shape.layout)
        return Launch(split_kernel(self.shape), blocks, (SPLIT_THREADS,), args), attend


def prompt32_call(request: Request) -> Prompt32:
    """The call with 64 rows a block while these fit on the card at once, twice where causal; 128 rows beyond.

    With more than 128 dims, shared memory and registers hold 64 rows. Raises: Unsupported.
    """
    require_prompt32(request)
    require_raw_keys(request.problem)
    hdim = request.problem.hdim
    call = Prompt32(Prompt32Shape(hdim, 1, 2, request.embedding, request.half_split), request)
    few = call.tiles * request.shared_heads <= request.sms * (1 + request.problem.causal)
    return call if few or hdim > 128 else replace(call, shape=replace(call.shape, groups=2))


def pays32(call: Prompt32) -> bool:
    """Whether the op takes a call, which is then faster than V8 by the estimates, fitted on an H100."""
    p, of = call.of.problem, call.of
    fits = not of.by_length and is_positive(of.scale) and p.batch * p.heads * p.seq_q <= MOST_ROWS
    if not fits or min(p.seq_q, p.seq_k) < LEAST_ROWS:
        return False
    return not takes(p, of.share) or call.cycles < fastest(p, p.rotary_dim, of.share)[1]
