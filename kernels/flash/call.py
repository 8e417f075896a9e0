"""Parts that the planners of the flash kernels share: a request, a call that a kernel was chosen for, and its plan."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ..constants import MUST_BE, require
from ..limits import EMULATED_TARGET, Share
from ..rates import rates_of, slopes_of
from ..tensor_map import MAP_BYTES, TensorMap
from ..version import Buffer, Launch, Plan, Problem
from . import args
from .schedule import Shape

WHOLE = Share()  # of plans, which are the same on every machine
TENSORS = ("q", "k", "v", "out")  # a launch's first arguments
NAMES = (*args.Tensors._fields, *args.Sizes._fields, *args.Rotation._fields, *args.Workspace._fields)


@dataclass(frozen=True)
class Request:
    """A problem and how it is asked: what the choice of a kernel depends on.

    `scale` multiplies scores, as in softmax(scale q k). embedding: see `embed`. by_length: sequences have lengths of
    their own, up to seq_k. target and share: of the card.
    """

    problem: Problem
    scale: float
    embedding: str
    half_split: bool
    by_length: bool
    target: str
    share: Share = WHOLE

    @property
    def sms(self) -> int:
        return self.share.sms

    @property
    def rows(self) -> int:
        """Rows of queries of a KV head."""
        return self.problem.heads // self.problem.kv_heads * self.problem.seq_q

    @property
    def shared_heads(self) -> int:
        """KV heads of all sequences."""
        return self.problem.batch * self.problem.kv_heads

    @property
    def how(self) -> tuple[str, bool, str]:
        return self.embedding, self.half_split, self.target

    def require(self, where: str, step: int, most: int, vector: int) -> None:
        """Raises: Unsupported where the head dim or half-split pairs are not what kernels of such calls take."""
        hdim, rotary_dim = self.problem.hdim, self.problem.rotary_dim
        require(hdim % step == 0 and hdim <= most, "hdim", hdim, f"a multiple of {step} up to {most}{where}", MUST_BE)
        whole = not self.half_split or rotary_dim % vector == 0
        require(whole, "rotary_dim", rotary_dim, f"a multiple of {vector} where half-split", MUST_BE)


def request_of(
    problem: Problem,
    target: str,
    half_split: bool = False,
    given: tuple[bool, bool, bool] = (False, False, False),
    scale: float | None = None,
    share: Share = WHOLE,
) -> Request:
    """`given`: whether the call has tables, positions, and lengths. `scale` is the usual one by default."""
    tables, positions, lengths = given
    embedding = ("rates", "positions", "tables", "placed_tables")[positions + 2 * tables]
    if problem.family == "alibi" or not problem.rotary_dim:
        embedding = "alibi" if problem.family == "alibi" else "none"
    scale = problem.softmax_scale if scale is None else scale
    return Request(problem, scale, embedding, half_split and problem.rotary_dim > 0, lengths, target, share)


@dataclass(frozen=True)
class Call:
    """Calls alike but for how many keys there are: their kernels, and what these are launched with."""

    name: ClassVar[str]  # of its version, behind the family
    any_keys: ClassVar[bool] = True  # whether it is chosen however many keys there are
    by_strides: ClassVar[bool] = False  # whether its launches depend on the strides of k and v

    shape: Any
    of: Request

    @property
    def version(self) -> str:
        """The id of the version whose kernels these are."""
        family = "rope" if self.of.problem.family == "rope" or not self.any_keys else "attention"
        return f"{family}_{self.name}"

    @property
    def half_split(self) -> bool:
        """Whether the kernels take half-split pairs."""
        return self.of.half_split

    @property
    def turns(self) -> tuple[int, int] | None:
        """Pairs and step of `rates_of`, which the kernels read; None for `rates_of_turning`."""
        return self.shape.dims // 2, self.shape.row_step

    @property
    def tiles(self) -> int:
        return -(-self.of.rows // self.shape.rows)

    def splits(self, seq_k: int) -> tuple[int, int]:
        """(splits, keys of each)."""
        return 1, seq_k

    def sizes(self, seq_k: int, q_offset: int, lengths: Any) -> tuple[Any, ...]:
        """The arguments of `args.Sizes`; `lengths` is what stands for their buffer."""
        p, (splits, split_keys), scale = self.of.problem, self.splits(seq_k), self.of.scale * math.log2(math.e)
        rows = (p.kv_heads, p.heads // p.kv_heads, p.seq_q, seq_k, self.tiles, self.shape.rows)
        return (*rows, split_keys, splits, q_offset, int(p.causal), scale, lengths, int(self.of.by_length))

    def alike(self, seq_k: int) -> Any:
        """A key that numbers of keys share for which the launches are the same."""
        return seq_k

    def at(self, seq_k: int, k: tuple[int, ...], v: tuple[int, ...]) -> "Call":
        """The call for so many keys; k and v have these strides of batch, head and row."""
        return self

    def buffers(self, seq_k: int) -> dict[str, Buffer]:
        """Those that launches fill for the ones behind them: of each call its own, as calls may run at once."""
        return {}

    def maps(self, seq_k: int, k: tuple[int, ...], v: tuple[int, ...]) -> dict[str, TensorMap]:
        """Of `buffers`, or of k and v with these strides."""
        return {}

    def launches(self, args: tuple[Any, ...], seq_k: int) -> tuple[Launch, ...]:
        """Those for so many keys; `args` are values of the arguments NAMES, or names."""
        raise NotImplementedError

    def all_launches(self, seq_k: int) -> tuple[Launch, ...]:
        """Those whose kernels calls need, whether they have so many keys or others."""
        return self.launches(NAMES, seq_k)


def is_positive(scale: float) -> bool:
    """Whether a scale is above 0 as kernels get it: times log2(e), in float32, where less than 2^-126 counts as 0."""
    return scale * math.log2(math.e) >= 2.0**-126


def flash_plan(
    choose: Callable[[Request], Call],
    problem: Problem,
    target: str = EMULATED_TARGET,
    half_split: bool = False,
    tables: tuple[np.ndarray, np.ndarray] | None = None,
    positions: np.ndarray | None = None,
    lengths: np.ndarray | None = None,
    capacity: int | None = None,
    sms: int = WHOLE.sms,
    **fields: Any,
) -> Plan:
    """Plan a problem by the kernel that `choose` takes. Raises: Unsupported.

    tables: cos and sin `[positions, rotary_dim / 2]`; positions: int `[batch, places]`; lengths: int `[batch]`.
    capacity: rows of the cache that k and v are the first of, seq_k by default. `fields` are changed in the shape.
    """
    tensors = {"positions": (positions, "int32"), "lengths": (lengths, "int32")}
    tensors |= {"cos": (tables and tables[0], "float32"), "sin": (tables and tables[1], "float32")}
    asked = tables is not None, positions is not None, lengths is not None
    call = choose(request_of(problem, target, half_split, asked, share=Share(sms)))
    call = replace(call, shape=replace(call.shape, **fields))
    buffers = inputs_of(problem, call.shape, capacity or problem.seq_k, tensors)
    buffers |= call.buffers(problem.seq_k)
    maps = call.maps(problem.seq_k, *(strides_of(buffers[name].shape) for name in "kv"))
    buffers |= {name: Buffer((MAP_BYTES // 4,), "int32", tensor_map=each) for name, each in maps.items()}

    def named(*names: str) -> list[str]:
        """The buffers of arguments; q stands for one that the kernel does not read."""
        return [name if name in buffers else "q" for name in names]

    table_rows, pitch = buffers["cos"].shape if "cos" in buffers else (0, 0)
    places = buffers["positions"].shape[1] if "positions" in buffers else 0
    strides = (stride for name in TENSORS for stride in strides_of(buffers[name].shape))
    sizes = call.sizes(problem.seq_k, problem.q_offset, *named("lengths"))
    rotation = (problem.rotary_dim, *named("rates", "cos", "sin"), pitch, table_rows, *named("positions"), places)
    args = (*TENSORS, *strides, *sizes, *rotation, *named("slopes", "part", "totals"))
    return Plan(problem, buffers, call.launches(args, problem.seq_k))


def inputs_of(problem: Problem, shape: Shape, capacity: int, tensors: dict[str, tuple[Any, str]]) -> dict[str, Buffer]:
    """The buffers of a problem for a kernel of `shape`: its tensors, those that are given, and tables."""
    cache, embedding = (problem.batch, problem.kv_heads, capacity, problem.hdim), shape.embedding
    buffers = {name: Buffer(cache if name in "kv" else problem.q_shape, problem.dtype) for name in TENSORS}
    for name, (values, dtype) in tensors.items():
        if values is not None:
            buffers[name] = Buffer(values.shape, dtype, init=partial(np.asarray, values))
    if embedding in ("rates", "positions"):
        pairs, step = shape.dims // 2, shape.row_step
        buffers["rates"] = Buffer((2, pairs, 2), init=partial(rates_of, problem.rotary_dim, pairs, step))
    if embedding == "alibi":
        rows = problem.batch * problem.heads
        buffers["slopes"] = Buffer((rows,), init=partial(slopes_of, problem.batch, problem.heads))
    return buffers


def strides_of(shape: tuple[int, ...]) -> tuple[int, int, int]:
    _, heads, rows, dims = shape
    return heads * rows * dims, rows * dims, dims
