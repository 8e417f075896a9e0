"""Kernel versions: a problem goes in, a plan of launches over named buffers comes out.

Three runtimes consume the same plan, and no version knows which: `runtime.gpu` runs and times it, `runtime.emulator`
executes its PTX with NumPy, `runtime.compile` reports its resources.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np

from .limits import EMULATED_TARGET
from .tensor_map import TensorMap

FAMILIES = ("attention", "sinusoidal", "rope", "alibi", "learned", "fp16")
DTYPES = ("float32", "float16", "bfloat16")
TABLES = ("computed", "float32", "float16", "float8")

Status = Literal["ok", "wrong"]
HazardKind = Literal["race", "uninitialised", "out_of_bounds"]
# A field of the problem, a limit of the GPU, or a library.
Refusal = Literal[
    "family", "batch", "kv_heads", "seq_q", "seq_k", "hdim", "rotary_dim", "dtype", "causal", "q_offset", "table",
    "elements", "positions", "shared_memory", "capability", "cluster", "grid", "scale", "library",
]  # fmt: skip
MOST_BLOCKS = {"x": 2**31 - 1, "y": 65_535, "z": 65_535}  # blocks of a grid, on every compute capability


class Unsupported(ValueError):
    """A version cannot take a problem, or a GPU cannot take a launch.

    `kind` names what was refused. `needed` is the value asked for and `allowed` what is accepted, as values or words.
    The message is `template` with these filled in.
    """

    def __init__(self, kind: Refusal, needed: Any, allowed: Any, template: str) -> None:
        super().__init__(kind, needed, allowed, template)  # all arguments, so that it can be pickled
        self.kind = kind
        self.needed = needed
        self.allowed = allowed
        self.template = template

    def __str__(self) -> str:
        return self.template.format(kind=self.kind, needed=self.needed, allowed=self.allowed)

    @property
    def status(self) -> Literal["infeasible", "unsupported"]:
        """The status that a check records: infeasible where a block needs too much shared memory, else unsupported."""
        return "infeasible" if self.kind == "shared_memory" else "unsupported"


@dataclass(frozen=True, order=True)
class Problem:
    """One attention problem; every field is a column of the data.

    Tensors are contiguous: q `[batch, heads, seq_q, hdim]`, k and v `[batch, kv_heads, seq_k, hdim]`, out like q. Query
    i has position `q_offset + i`, key j position j. `rotary_dim` is the number of leading dims that RoPE rotates, 0
    without RoPE. Fields that a family does not use keep their defaults. `None` means the usual value: kv_heads = heads,
    seq_k = seq_q, q_offset = seq_k - seq_q.

    Raises:
        ValueError: a field is out of range; the message names the field and what is allowed.
    """

    family: str
    batch: int = 1
    heads: int = 1
    kv_heads: int = None  # type: ignore[assignment]
    seq_q: int = 64
    seq_k: int = None  # type: ignore[assignment]
    hdim: int = 512
    rotary_dim: int = 0
    dtype: str = "float32"
    causal: bool = False
    q_offset: int = None  # type: ignore[assignment]
    table: str = "computed"

    def __post_init__(self) -> None:
        def fill(name: str, value: int) -> None:
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

        fill("kv_heads", self.heads)
        fill("seq_k", self.seq_q)
        fill("q_offset", self.seq_k - self.seq_q)
        object.__setattr__(self, "causal", bool(self.causal))
        for name, allowed in (("family", FAMILIES), ("dtype", DTYPES), ("table", TABLES)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}; allowed: {', '.join(allowed)}")
        for name in ("batch", "heads", "kv_heads", "seq_q", "seq_k", "hdim"):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or value < 1:
                raise ValueError(f"{name} is {value!r}; it must be an integer of 1 or more")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads is {self.heads}; it must be a multiple of kv_heads, which is {self.kv_heads}")
        if not 0 <= self.rotary_dim <= self.hdim or self.rotary_dim % 2:
            raise ValueError(
                f"rotary_dim is {self.rotary_dim}; it must be even and between 0 and hdim, which is {self.hdim}"
            )

    @property
    def softmax_scale(self) -> float:
        return 1.0 / math.sqrt(self.hdim)

    @property
    def q_shape(self) -> tuple[int, int, int, int]:
        return (self.batch, self.heads, self.seq_q, self.hdim)

    @property
    def kv_shape(self) -> tuple[int, int, int, int]:
        return (self.batch, self.kv_heads, self.seq_k, self.hdim)

    @property
    def flops(self) -> int:
        """Floating-point operations of both products, 2 a multiply-add: 4 * batch * heads * seq_q * seq_k * hdim."""
        return 4 * self.batch * self.heads * self.seq_q * self.seq_k * self.hdim

    def __str__(self) -> str:
        rotary = f" R{self.rotary_dim}" if self.rotary_dim else ""
        keys = f"/{self.seq_k}" if self.seq_k != self.seq_q else ""
        mask = " causal" if self.causal else ""
        return f"{self.family} B{self.batch} H{self.heads} S{self.seq_q}{keys} D{self.hdim}{rotary}{mask}"


PROBLEM_COLUMNS = tuple(f.name for f in fields(Problem))


@dataclass(frozen=True)
class CudaFunction:
    """A `__global__` function of CUDA C++ with C linkage; `text` is the whole source that it is compiled from."""

    name: str
    text: str


@dataclass(frozen=True)
class Kernel:
    """A kernel in Python for Numba CUDA, or in CUDA C++, with its signature.

    `signature` holds one Numba type per argument; a buffer is `types.CPointer(dtype)`. `max_threads` of a block and
    `min_blocks` of an SM are the launch bounds for the compiler; CUDA C++ states them in its source. `architecture` is
    the one target whose specific instructions the kernel uses, such as "sm_90a"; None for a kernel that runs on any
    target.
    """

    function: Callable[..., None] | CudaFunction
    signature: tuple[Any, ...]
    max_threads: int | None = None
    fast_math: bool = False
    min_blocks: int | None = None
    architecture: str | None = None

    @property
    def name(self) -> str:
        return self.function.name if isinstance(self.function, CudaFunction) else self.function.__name__

    @property
    def parameters(self) -> tuple[Any, ...]:
        """The signature with tuples flattened: one type for each argument of a launch."""
        return tuple(part for kind in self.signature for part in (getattr(kind, "types", (kind,))))

    @property
    def launch_bounds(self) -> tuple[int, ...] | None:
        """(max_threads, min_blocks), (max_threads,) or None. Raises: ValueError for min_blocks without max_threads."""
        if self.max_threads is None and self.min_blocks is not None:
            raise ValueError(f"min_blocks of {self.name} is {self.min_blocks}; it needs max_threads")
        return tuple(bound for bound in (self.max_threads, self.min_blocks) if bound is not None) or None


class SharedLayout(Mapping[str, int]):
    """Named arrays in shared memory, one after the other, with their sizes in float32 elements.

    `SharedLayout(scores=64, reduction=32)["reduction"]` is the offset (64) in elements.
    """

    def __init__(self, **sizes: int | np.integer) -> None:
        self.sizes = {name: int(size) for name, size in sizes.items()}
        self._offsets: dict[str, int] = {}
        end = 0
        for name, size in sizes.items():
            self._offsets[name] = end
            end += int(size)
        self.nbytes = 4 * end

    def __getitem__(self, name: str) -> int:
        return self._offsets[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._offsets)

    def __len__(self) -> int:
        return len(self._offsets)

    def place(self, byte: int) -> str:
        """The name of the array that contains a byte offset, or "shared" if none does."""
        for name, start in self._offsets.items():
            if 4 * start <= byte < 4 * (start + self.sizes[name]):
                return name
        return "shared"


@dataclass(frozen=True)
class Launch:
    """One kernel launch. `args` are numbers or names of the plan's buffers; `grid` counts blocks.

    `shared` is the layout of dynamic shared memory; `static` are the arrays that the kernel declares itself, one object
    each. `shape` is what a V8 core made its kernel for, None for other kernels.

    Raises: Unsupported for a grid with more blocks along a dimension than any GPU takes.
    """

    kernel: Kernel
    grid: tuple[int, ...]
    block: tuple[int | np.integer, ...]
    args: tuple[str | int | float, ...]
    shared: SharedLayout = field(default_factory=SharedLayout)
    static: SharedLayout = field(default_factory=SharedLayout)
    cluster: int = 1
    shape: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "grid", tuple(int(size) for size in self.grid))
        object.__setattr__(self, "block", tuple(int(size) for size in self.block))
        for (axis, most), blocks in zip(MOST_BLOCKS.items(), self.grid):
            if blocks > most:
                template = f"the grid is {{needed:,}} blocks along {axis}; a GPU takes {{allowed:,}}"
                raise Unsupported("grid", blocks, most, template)

    @property
    def dynamic_bytes(self) -> int:
        return self.shared.nbytes

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block in bytes, static and dynamic."""
        return self.static.nbytes + self.shared.nbytes


@dataclass(frozen=True)
class Sync:
    """A host synchronisation that the source's own harness makes at this point of each call."""


SYNC = Sync()


@dataclass(frozen=True)
class Buffer:
    """Global memory of a plan.

    `init` returns the contents of a table; the runner of a plan fills q, k and v; everything else starts as NaN and
    counts as unwritten. `padding` elements after the end are allocated (as NaN) but out of bounds: only a version with
    a declared out-of-bounds read has any. `tensor_map` describes a buffer of 128 bytes, which the runner of the plan
    encodes.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    init: Callable[[], np.ndarray] | None = None
    padding: int = 0
    tensor_map: TensorMap | None = None

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Hazard:
    """A known defect of a version that a check must find: no more and no fewer than declared.

    `place` is a buffer or an array of the shared layout.
    """

    kind: HazardKind
    kernel: str
    place: str
    why: str


@dataclass(frozen=True)
class Plan:
    """The solution of a problem by a version: launches and host syncs over named buffers.

    A peer has a `call(q, k, v) -> out` on torch tensors instead of launches. `defect` says how the result is wrong; it
    is empty where it is right.
    """

    problem: Problem
    buffers: dict[str, Buffer] = field(default_factory=dict)
    steps: tuple[Launch | Sync, ...] = ()
    call: Callable[..., Any] | None = None
    defect: str = ""
    hazards: tuple[Hazard, ...] = ()

    @property
    def expected(self) -> Status:
        return "wrong" if self.defect else "ok"

    @property
    def unspecified(self) -> bool:
        """Whether it reads uninitialised shared memory: NaN in the emulator, leftovers of another kernel on a GPU."""
        return any(hazard.kind == "uninitialised" and hazard.place not in self.buffers for hazard in self.hazards)

    @property
    def launches(self) -> tuple[Launch, ...]:
        return tuple(step for step in self.steps if isinstance(step, Launch))

    @property
    def core(self) -> str:
        """The V8 core that computes the attention: "wgmma", "mma" or "portable"; empty for other kernels."""
        return next((launch.shape.core for launch in self.launches if launch.shape), "")

    def with_launches(self, changed: Callable[[Launch], Launch]) -> Plan:
        """The plan with each launch replaced by what `changed` returns for it."""
        return replace(self, steps=tuple(changed(step) if isinstance(step, Launch) else step for step in self.steps))


Model = Callable[[Problem, np.ndarray, np.ndarray, np.ndarray], np.ndarray]  # (problem, q, k, v) -> out, in float64
Planner = Callable[..., Plan]  # (problem) or (problem, target) -> Plan


@dataclass(frozen=True)
class Version:
    """One entry of the log: its metadata and the function that plans it. `register` describes the fields."""

    id: str
    family: str
    title: str
    source: str
    change: str
    parent: str | None
    baseline: str | None
    plan: Planner
    iterations: int = 20
    ablation: bool = False
    beyond: bool = False
    variant_of: str | None = None
    control_of: str | None = None
    fast_math: bool = False
    is_peer: bool = False
    compiled_embedding: bool = False
    whole_rows: bool = False
    scalar_loads: bool = False
    accurate_sines: bool = False
    wrong_output: Model | None = None

    @property
    def module(self) -> str:
        return self.plan.__module__

    @property
    def of_log(self) -> bool:
        """Whether the documents' logs list it as a kernel of its own: no peer, ablation, control, nor V8."""
        return not (self.is_peer or self.ablation or self.control_of or self.beyond)

    @property
    def built_from(self) -> str:
        """The version of which this is the fast-math build, or its own id."""
        return self.variant_of if self.fast_math and self.variant_of else self.id

    @functools.cached_property
    def by_target(self) -> bool:
        """Whether its launches depend on the target: whether its planner has a parameter `target`."""
        return "target" in inspect.signature(self.plan).parameters

    def __call__(self, problem: Problem, target: str = EMULATED_TARGET) -> Plan:
        """Plan `problem` for a target such as "sm_90". Raises: Unsupported, with the value given and those allowed."""
        if problem.family != self.family:
            template = "family is {needed}; this version takes {allowed}"
            raise Unsupported("family", problem.family, self.family, template)
        return self.plan(problem, target=target) if self.by_target else self.plan(problem)


VERSIONS: dict[str, Version] = {}


def register(
    *,
    title: str,
    family: str = "",
    source: str = "",
    change: str = "",
    parent: str | None = None,
    baseline: str | None = None,
    peer: bool = False,
    **others: Any,
) -> Callable[[Planner], Planner]:
    """Register the decorated planner, a function of a problem or of a problem and a `target`, under its own name.

    `others` are further fields of `Version`, with its defaults.

    `family` is by default the first word of the name, `source` what follows "Source: " in the module's docstring.
    `parent` is the version that it changes. `baseline` is the version that its source compares it with, often another.
    `iterations` is the length of the timing loop in the source's harness. An `ablation` is not a version of the log but
    its parent with one thing changed. Versions `beyond` the documents are measured in studies of their own.
    `variant_of` names the version whose kernels it reuses: in another build, with more shared memory, or for another
    embedding. `fast_math` says that the build uses fast-math. A control is not a version of the log either:
    `control_of` names the version whose launches it repeats with the same kernels in CUDA C++.

    A `peer` is what a user would otherwise use, from another library. `compiled_embedding` says that PyTorch compiles
    the embedding of a peer separately from its attention.

    The rest tells the checks what to demand of its kernels. `whole_rows`: a block holds whole rows of scores, without
    tiles of keys. `scalar_loads`: q, k and v are loaded from global memory one value at a time, not 16 bytes.
    `accurate_sines`: it calls the accurate functions of the compiler, which reduce a large angle in 64 bits.
    `wrong_output`: the model of what it computes where its plan says "wrong".

    Raises:
        ValueError: the id is taken, or `parent` or `baseline` is not registered yet.
        TypeError: `Version` has no such field.
    """

    def decorate(plan: Planner) -> Planner:
        name = plan.__name__
        if name in VERSIONS:
            raise ValueError(f"version {name!r} is registered twice: {VERSIONS[name].module} and {plan.__module__}")
        for role, other in (("parent", parent), ("baseline", baseline)):
            if other is not None and other not in VERSIONS:
                raise ValueError(
                    f"{role} of {name!r} is {other!r}, which is not registered: VERSIONS of the package imports all in "
                    f"order; known: {', '.join(VERSIONS)}"
                )
        documented = " ".join((sys.modules[plan.__module__].__doc__ or "").rpartition("Source: ")[2].split())
        where = source or documented.removesuffix(".")
        VERSIONS[name] = Version(
            name, family or name.partition("_")[0], title, where, inspect.cleandoc(change), parent, baseline, plan,
            is_peer=peer, **others,
        )  # fmt: skip
        return plan

    return decorate


def version(name: str) -> Version:
    """The version called `name`. Raises: KeyError with the known ids."""
    from . import VERSIONS as known  # with all that `registry` imports

    try:
        return known[name]
    except KeyError:
        raise KeyError(f"no version is called {name!r}; known: {', '.join(known)}") from None
