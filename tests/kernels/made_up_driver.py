"""A driver that is made up, of one H100 with streams by handle: a test puts it in the place of the CUDA driver.

It compiles nothing. A variant that computes does so by the arguments of a launch alone, as soon as it is made: a wrong
address, stride, table or number makes a wrong result, as on a card.
"""

import contextlib
import ctypes
import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from cuda.bindings import driver

from kernels.flash import args
from kernels.flash.call import Call, Request
from kernels.flash.cluster.call import cluster_call
from kernels.flash.combine import NAMES as COMBINED
from kernels.op.arguments import Options, Tensors
from kernels.op.fallback import attend
from kernels.runtime import compile as compiler
from kernels.runtime import forget, gpu, streams
from kernels.runtime.gpu import C_FORMATS
from kernels.tensor_map import MAP_BYTES, TensorMap
from kernels.version import Kernel, Launch

OK, TOO_LARGE = driver.CUresult.CUDA_SUCCESS, driver.CUresult.CUDA_ERROR_INVALID_CLUSTER_SIZE
NOT_IN_CAPTURE = driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
CLUSTER_DIM = int(driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
STREAM, ATTRIBUTES, COUNT, ATTRIBUTE_BYTES = 32, 40, 48, 72  # offsets in a configuration; bytes of an attribute
CELLS = {"Q": ctypes.c_uint64, "I": ctypes.c_uint32, "i": ctypes.c_int32, "f": ctypes.c_float}
GROUPS = (args.Tensors, args.Sizes, args.Rotation, args.Workspace)
NAMES = [name for group in GROUPS for name in (group._fields if group is not args.Rotation else
         ["turn_batch" if field == "batch" else field for field in group._fields])]  # fmt: skip
AXES = ("batch", "head", "row")
THREADS = 12  # offset in a configuration
PARTS, MAPS = ("scales", "q_parts", "k_parts", "v_parts"), ("q_map", "k_map", "v_map")
CLUSTER_SIZES = ("kv_heads", "reciprocal", "seq_q", "seq_k", "hdim", "rotary_dim", "q_offset", "causal", "scale")
EXTRA = {0: (), 1: ("k_rotated",), 2: MAPS[1:], 3: (*MAPS[1:], "batches"), 4: PARTS, 7: (*PARTS, *MAPS)}


class Stream(NamedTuple):
    """`sms` of its green context, 0 on the whole card; the largest `cluster` there; whether it is `torchs` own."""

    id: int
    sms: int = 0
    cluster: int = 16
    torchs: bool = False


class Present(gpu.Driver):
    """A card is there, and `device` and `stream` are the current ones."""

    device = stream = 0

    def available(self) -> bool:
        return True

    def begin(self) -> None:
        pass

    def current_device(self) -> int:
        return self.device

    def current_stream(self, device: int) -> int:
        return self.stream


class Driver(Present):
    """`current` is the stream that 0 stands for; tensors, which are on the CPU, count as on `tensor_device`."""

    version, sms, captures = 13_000, 132, False

    def __init__(self) -> None:
        self.api = self
        self.tensor_device = self.asked = 0
        self.current, self.streams = Stream(0), dict[int, Stream]()
        self.kernels: dict[str, Kernel] = {}
        self.names: list[str] = []  # of what was loaded
        self.launched: list[Any] = []  # cluster, blocks and stream of each launch

    @property
    def loaded(self) -> list[str]:
        return [name for name in self.names if name != streams.PROBE]

    def compile(self, kernel: Kernel, target: str) -> str:
        self.kernels[kernel.name] = kernel
        return kernel.name

    def load(self, ptx: str, target: str) -> int:
        self.names.append(ptx)
        return len(self.names) - 1

    def capability(self, device: int) -> tuple[int, int]:
        return 9, 0

    def card_of(self, x: torch.Tensor) -> int:
        return self.tensor_device

    def torch_stream(self, device: int) -> Any:
        return SimpleNamespace(stream_id=1 if self.of(self.stream).torchs else self.stream)

    def capturing(self) -> bool:
        return self.captures

    @contextlib.contextmanager
    def on(self, device: int) -> Iterator[None]:
        before, self.device = self.device, device
        yield
        self.device = before

    def encode_map(self, of: TensorMap, address: int) -> bytes:
        return bytes(MAP_BYTES)

    def of(self, stream: Any) -> Stream:
        return self.streams.get(int(stream), self.current)

    def cuDriverGetVersion(self) -> Any:
        return OK, self.version

    def cuStreamGetId(self, stream: int) -> Any:
        self.asked += 1
        return (NOT_IN_CAPTURE, 0) if self.captures else (OK, self.of(stream).id)

    def cuStreamGetGreenCtx(self, stream: int) -> Any:
        assert self.version >= 12_040
        self.asked += 1
        return OK, self.of(stream).sms  # the handle of the context is the number of its SMs

    def cuGreenCtxGetDevResource(self, context: int, kind: Any) -> Any:
        assert kind == driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
        return OK, SimpleNamespace(sm=SimpleNamespace(smCount=context))

    def cuDeviceGetAttribute(self, attribute: Any, device: int) -> Any:
        return OK, self.sms if "MULTIPROCESSOR_COUNT" in attribute.name else 232_448

    def cuFuncSetAttribute(self, function: int, attribute: Any, value: int) -> Any:
        return (OK,)

    def cuFuncGetAttribute(self, attribute: Any, function: int) -> Any:
        return OK, 0

    def cuOccupancyMaxActiveClusters(self, function: int, config: Any) -> Any:
        fits = config.attrs[0].value.clusterDim.x <= self.of(config.hStream).cluster
        return (OK, 1) if fits else (TOO_LARGE, 0)

    def cuOccupancyMaxPotentialClusterSize(self, function: int, config: Any) -> Any:
        return OK, self.of(config.hStream).cluster

    def launch(self, config: int, handle: int, parameters: int, extra: None) -> int:
        x, y, z = grid_of(config)
        stream, attributes, count = (
            ctypes.c_uint64.from_address(config + at).value for at in (STREAM, ATTRIBUTES, COUNT)
        )
        cluster = 1
        for at in range(attributes, attributes + (count & 0xFFFFFFFF) * ATTRIBUTE_BYTES, ATTRIBUTE_BYTES):
            if ctypes.c_uint32.from_address(at).value == CLUSTER_DIM:
                cluster = ctypes.c_uint32.from_address(at + 8).value
        self.launched.append((cluster, x * y * z, stream))
        return int(OK if cluster <= self.of(stream).cluster else TOO_LARGE)

    def given(self, handle: int, parameters: int, names: Sequence[Any]) -> dict[str, Any]:
        """The arguments of a launch by name; of a tensor map its bytes."""
        pointers = ctypes.cast(parameters, ctypes.POINTER(ctypes.c_void_p))
        given: dict[str, Any] = {}
        for i, (name, kind) in enumerate(zip(names, self.kernels[self.names[handle]].parameters, strict=True)):
            if str(name).endswith("_map"):
                given[name] = ctypes.string_at(pointers[i], MAP_BYTES)
            else:
                given[name] = CELLS[C_FORMATS.get(str(kind), "Q")].from_address(pointers[i]).value
        return given


def grid_of(config: int) -> tuple[int, ...]:
    return tuple((ctypes.c_uint32 * 3).from_address(config))


def at(address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any = np.float32) -> torch.Tensor:
    """The memory at an address, as a tensor that shares it."""
    count = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    memory = (ctypes.c_byte * (count * np.dtype(dtype).itemsize)).from_address(address)
    return torch.from_numpy(np.frombuffer(memory, dtype)).as_strided(shape, strides)


def rates_in(given: dict[str, Any], hdim: int, pairs: int, threads: int, size: int) -> torch.Tensor:
    """Half turns a position of each pair; the table also has the rotation from one row of a thread to its next.

    Without `threads` it has the half turns alone, in two parts.
    """
    if not threads:
        return at(given["rates"], (pairs, 2), (2, 1)).double().sum(-1)
    all_pairs = max(64, 1 << (hdim - 1).bit_length()) // 2
    rates, step = at(given["rates"], (2, all_pairs, 2), (2 * all_pairs, 2, 1)).double()
    rates = rates.sum(-1)
    by = np.pi * rates * (threads // min(threads, 2 * all_pairs * size // 16))
    torch.testing.assert_close(step, torch.stack((by.cos() - 1, by.sin()), -1), atol=3e-7, rtol=0)
    assert not rates[pairs:].any()
    return rates[:pairs]


def attend_as(given: dict[str, Any], batch: int, threads: int, **moved: Any) -> None:
    """Attention over the memory that the arguments of a launch tell of; `moved` are tensors that it reads elsewhere.

    `threads` share the rows of a tile of keys; 0: see `rates_in`. The output is NaN first: blocks write while others
    read.
    """
    parts = given["kernel"].split("_")
    dtype, hdim = getattr(torch, parts[2]), int(parts[3][1:])
    kv_heads, seq_q, seq_k = given["kv_heads"], given["seq_q"], given["seq_k"]
    sizes = {"q": (kv_heads * given["group"], seq_q), "k": (kv_heads, seq_k)}
    sizes |= {"v": sizes["k"], "out": sizes["q"]}
    raw = np.int16 if dtype != torch.float32 else np.float32

    def tensor(name: str) -> torch.Tensor:
        strides = tuple(given[f"{name}_{axis}"] for axis in AXES)
        return at(given[name], (batch, *sizes[name], hdim), (*strides, 1), raw).view(dtype)

    pairs, places = given["rotary_dim"] // 2, max(seq_k, given["q_offset"] + seq_q)
    cos = sin = positions = slopes = lengths = None
    if "tables" in parts:
        cos, sin = (at(given[x], (given["rows"], pairs + pairs % 2), (given["pitch"], 1)) for x in ("cos", "sin"))
        assert not (given["cos"] | given["sin"] | 4 * given["pitch"]) & 7  # two pairs are loaded at a time
        assert bool((cos[:, pairs:] == 1).all() and (sin[:, pairs:] == 0).all())
        cos, sin = cos[:, :pairs], sin[:, :pairs]
    elif pairs:
        angle = np.pi * torch.arange(1200)[:, None] * rates_in(given, hdim, pairs, threads, dtype.itemsize)
        cos, sin = angle.cos().float(), angle.sin().float()
    if {"positions", "placed"} & {*parts}:
        positions = at(given["positions"], (batch, places), (given["turn_batch"], 1), np.int32)
    if "alibi" in parts:
        slopes = at(given["slopes"], (batch, sizes["q"][0]), (sizes["q"][0], 1))
    if given["by_length"]:
        lengths = at(given["lengths"], (batch,), (1,), np.int32)
    options = Options(
        "rope" if slopes is None else "alibi", 2 * pairs, 0.0, "halves" not in parts, bool(given["causal"]),
        given["q_offset"], given["scale"] * np.log(2),
    )  # fmt: skip
    q, k, v = (moved[x] if x in moved else tensor(x) for x in "qkv")
    out = tensor("out").fill_(torch.nan)
    out.copy_(attend(q, k, v, Tensors(cos, sin, positions, slopes, lengths), options))


def spoil(given: dict[str, Any], rows: int, hdim: int) -> None:
    """Write NaN where so many rows of partial results lie, which are apart."""
    at(given["part"], (rows * hdim,), (1,)).fill_(torch.nan)
    at(given["totals"], (rows * 2,), (1,)).fill_(torch.nan)
    assert given["totals"] >= given["part"] + 4 * rows * hdim


class ClusterCard(Driver):
    """V8 attends by a launch's arguments alone; a launch in front leaves it the keys, which this card has not embedded.

    `choose` stands in for `dispatch.chosen`. `launched` has the arguments of each launch that attends; a function of
    `replays` makes a launch again, as a graph would.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []  # that were planned
        self.made: dict[Kernel, tuple[Launch, Call]] = {}
        self.replays: list[Callable[[], None]] = []

    def choose(self, request: Request) -> Call:
        call = cluster_call(request)
        self.calls.append(call)
        self.made |= {launch.kernel: (launch, call) for launch in call.made}
        return call

    def compile(self, kernel: Kernel, target: str) -> str:
        name = f"{kernel.name} {[*self.made].index(kernel)}"  # kernels for other tables have the same
        self.kernels[name] = kernel
        return name

    def launch(self, config: int, handle: int, parameters: int, extra: None) -> int:
        launch, call = self.made[self.kernels[self.names[handle]]]
        names: list[Any] = [name if isinstance(name, str) else place for place, name in enumerate(launch.args)]
        if launch.kernel.name.startswith("combine"):
            names = list(COMBINED)
        else:
            names[-len(CLUSTER_SIZES) :] = CLUSTER_SIZES
            names[-len(CLUSTER_SIZES) - 1] = "all_rows"
        given = self.given(handle, parameters, names)
        given |= {"stream": ctypes.c_uint64.from_address(config + STREAM).value, "device": self.device}
        self.replays.append(partial(self.compute, given, grid_of(config), call))
        self.replays[-1]()
        return 0

    def compute(self, given: dict[str, Any], grid: tuple[int, ...], call: Call) -> None:
        if "splits" in given:
            attended = self.launched[-1]
            assert (attended["part"], attended["totals"]) == (given["part"], given["totals"])
            spoil(given, given["splits"] * given["rows"], given["hdim"])
            attend_as(attended | {name: given[name] for name in COMBINED[2:6]}, attended["sequences"], 0)
            return
        embedded = {"k": given.get("k_embedded")} | {f"k_{axis}": given.get(5 + i) for i, axis in enumerate(AXES)}
        kv_heads, group, seq_q, hdim = given["kv_heads"], grid[1], given["seq_q"], given["hdim"]
        if "v" not in given:
            shape = (grid[0] // kv_heads, kv_heads, given["seq_k"], hdim)
            moved, k = (at(x["k"], shape, (*(x[f"k_{axis}"] for axis in AXES), 1)) for x in (embedded, given))
            moved.copy_(k)
            return
        given = given | (embedded if "k_embedded" in given else {}) | {
            "kernel": f"cluster_fma_float32_d{hdim}_{call.of.embedding}{'_halves' * call.half_split}", "group": group,
            "turn_batch": given.get("batch"), "by_length": False, "scale": given["scale"] / np.log(2),
            "sequences": given["all_rows"] // (kv_heads * group * seq_q),
        }  # fmt: skip
        assert not call.half_split or given["rotary_dim"] % 8 == hdim % 8 == 0
        self.launched.append(given)
        if "out" in given:  # else the launch behind it combines parts
            attend_as(given, given["sequences"], 0)


class FlashCard(Driver):
    """A card of four multiprocessors: kernels of decode, chunks and prompts attend by a launch's arguments alone.

    Keys that a launch in front rotates are read where they were before, as this card rotates none. A tensor map is the
    index of what it was encoded of. `launched` has the arguments of each launch that attends, and whether all of its
    splits were `combined`; `rotated` those of launches that rotate keys, `split` those of the last that fills parts.
    """

    sms = 4

    def __init__(self) -> None:
        super().__init__()
        self.maps: list[tuple[TensorMap, int]] = []
        self.rotated: list[dict[str, Any]] = []
        self.split: dict[str, Any] = {}

    def encode_map(self, of: TensorMap, address: int) -> bytes:
        assert not any(stride % 16 or not stride for stride in of.strides)
        self.maps.append((of, address))
        return pickle.dumps(len(self.maps) - 1).ljust(MAP_BYTES, b"\0")

    def launch(self, config: int, handle: int, parameters: int, extra: None) -> int:
        name = self.names[handle]
        more = EXTRA.get(len(self.kernels[name].parameters) - len(NAMES), ())
        given = self.given(handle, parameters, COMBINED if name.startswith("combine") else (*NAMES, *more))
        given |= {field: pickle.loads(given[field]) for field in MAPS if field in given}
        given |= {"kernel": name, "grid": grid_of(config)}
        given["threads"] = ctypes.c_uint32.from_address(config + THREADS).value
        if name.startswith("combine"):
            self.combine(given)
        elif name.startswith("rotate"):
            self.rotated.append(given)
            assert given["k_rotated"] != given["k"]
        elif name.startswith("split"):
            self.split = given
        else:
            self.launched.append(given | {"combined": given["splits"] == 1})
            self.attend(self.launched[-1])
        return 0

    def combine(self, given: dict[str, Any]) -> None:
        before = self.launched[-1]
        same = {*COMBINED} & {*NAMES} - {"rows"}  # which before are those of tables
        assert all(given[field] == before[field] for field in same)
        rows = before["batch"] * given["heads"] * given["seq_q"]
        assert given["splits"] > 1 and given["heads"] == before["kv_heads"] * before["group"]
        blocks = -(-rows // 8) if given["kernel"].startswith("combine_rows") else rows
        assert given["rows"] == rows and given["grid"] == (blocks, -(-given["hdim"] // 64), 1)
        before["combined"] = f"_d{given['hdim']}_" in before["kernel"]

    def attend(self, given: dict[str, Any]) -> None:
        parts, kv_heads, splits, moved = given["kernel"].split("_"), given["kv_heads"], given["splits"], {}
        kind = parts[1] if parts[0] == "prompt" else parts[0]
        given["batch"] = batch = given.get("batches", given["grid"][2])
        rows = given["group"] * given["seq_q"]
        self.require_grid(given, kind, "split" in parts)
        assert (splits - 1) * given["split_keys"] < given["seq_k"] <= splits * given["split_keys"]
        if splits > 1:
            spoil(given, splits * batch * kv_heads * rows, int(parts[3][1:]))
        if kind == "parts":
            self.require_parts(given, max(64, 1 << (int(parts[3][1:]) - 1).bit_length()))
        mapped = kind in ("wgmma", "persistent")
        in_front = mapped or (parts[:2] == ["prompt", "mma"] and "split" not in parts)
        key = given["k"]
        if in_front and given["rotary_dim"] and "alibi" not in parts:
            before = self.rotated[-1]
            assert before["k_rotated"] == key and given["k_row"] == int(parts[3][1:])
            given = given | {name: before[name] for name in ("k", "k_batch", "k_head", "k_row")}
        if mapped:
            dtype, hdim, seq_k = getattr(torch, parts[2]), int(parts[3][1:]), given["seq_k"]
            of, address = self.maps[given["v_map"]]
            strides = [stride // 2 for stride in of.strides[::-1]]
            moved["v"] = at(address, (batch, kv_heads, seq_k, hdim), (*strides, 1), np.int16).view(dtype)
            of, address = self.maps[given["k_map"]]
            assert of.sizes == (hdim, seq_k, kv_heads, batch) and address == key
        threads = {"chunk": given["threads"], "decode": 32, "wide": 32}.get(kind, 256)
        if kind == "mma":
            row_warps, key_warps = (int(each) for each in parts[4][1:].split("x"))
            threads = 2 * row_warps * key_warps
        attend_as(given, batch, threads, **moved)

    def require_grid(self, given: dict[str, Any], kind: str, split: bool) -> None:
        """That blocks are as many as tiles and splits, or as multiprocessors where they stay."""
        tiles, splits, kv_heads = given["tiles"], given["splits"], given["kv_heads"]
        shared = 1 if kind == "persistent" else given["group"]
        assert tiles == -(-shared * given["seq_q"] // given["tile_rows"])
        if kind == "persistent":
            assert given["grid"] == (min(tiles * given["group"] * kv_heads * given["batch"], self.sms), 1, 1)
        elif given["kernel"].startswith("prompt"):
            grid = (splits, tiles * kv_heads) if split else (tiles, kv_heads)
            assert sorted(given["grid"][:2]) == sorted(grid)
        else:
            blocks, heads, _ = given["grid"]
            assert blocks == splits or (kind == "wide" and blocks % splits == 0)  # in clusters
            assert heads == tiles * kv_heads

    def require_parts(self, given: dict[str, Any], dims: int) -> None:
        """That both launches have the same arguments, the first fills all parts, and the maps are of them."""
        split, kv_heads, group = self.split, given["kv_heads"], given["group"]
        assert all(split[name] == given[name] for name in (*NAMES, *PARTS))
        tiles, heads, batch = split["grid"]
        assert heads == kv_heads * (group + 2) and batch == given["grid"][2]
        assert tiles * (8192 // dims) >= max(given["seq_q"], given["seq_k"])
        ends = [given[name] for name in PARTS[1:]]
        for name, address, rows in zip(MAPS, ends, (group * given["seq_q"], given["seq_k"], given["seq_k"])):
            of, start = self.maps[given[name]]
            row = 4 * dims
            assert start == address and start % 16 == 0 and of.sizes == (2 * dims, rows, kv_heads, batch)
            assert of.strides == (row, row * rows, row * rows * kv_heads)
            assert all(other >= start + batch * of.strides[2] for other in ends if other > start)
        assert given["q_parts"] >= given["scales"] + 4 * tiles * heads * batch


@contextlib.contextmanager
def in_place(made: Any, patch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Put `made` in the place of the CUDA driver; nothing is kept of calls before, nor of these afterwards."""
    patch.setattr(gpu, "DRIVER", made)
    patch.setattr(compiler, "compile_ptx", made.compile)
    patch.setattr(compiler, "is_cached", lambda kernel, target: True)
    forget()
    yield made
    forget()


def card_of(make: Callable[[], Any]) -> Any:
    """A fixture of what `make` makes, in the place of the CUDA driver."""

    @pytest.fixture
    def card(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
        with in_place(make(), monkeypatch) as made:
            yield made

    return card
