"""A driver that is made up, of one H100 with streams by handle: a test puts it in the place of the CUDA driver.

It compiles nothing. A variant that computes does so by the arguments of a launch alone, as soon as it is made: a wrong
address, stride, table or number makes a wrong result, as on a card.
"""

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from cuda.bindings import driver

from kernels.runtime import compile as compiler
from kernels.runtime import forget, gpu, streams
from kernels.runtime.gpu import C_FORMATS
from kernels.tensor_map import MAP_BYTES, TensorMap
from kernels.version import Kernel

OK, TOO_LARGE = driver.CUresult.CUDA_SUCCESS, driver.CUresult.CUDA_ERROR_INVALID_CLUSTER_SIZE
NOT_IN_CAPTURE = driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
CLUSTER_DIM = int(driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
STREAM, ATTRIBUTES, COUNT, ATTRIBUTE_BYTES = 32, 40, 48, 72  # offsets in a configuration; bytes of an attribute
CELLS = {"Q": ctypes.c_uint64, "I": ctypes.c_uint32, "i": ctypes.c_int32, "f": ctypes.c_float}


class Stream(NamedTuple):
    """`sms` of its green context, 0 on the whole card; the largest `cluster` there; whether it is `torchs` own."""

    id: int
    sms: int = 0
    cluster: int = 16
    torchs: bool = False


class Driver(gpu.Driver):
    """`current` is the stream that 0 stands for; tensors, which are on the CPU, count as on `tensor_device`."""

    version, sms, captures = 13_000, 132, False

    def __init__(self) -> None:
        self.api = self
        self.device = self.tensor_device = self.stream = self.asked = 0
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

    def available(self) -> bool:
        return True

    def begin(self) -> None:
        pass

    def current_device(self) -> int:
        return self.device

    def current_stream(self, device: int) -> int:
        return self.stream

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


@contextlib.contextmanager
def in_place(made: Any, patch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Put `made` in the place of the CUDA driver; nothing is kept of calls before, nor of these afterwards."""
    patch.setattr(gpu, "DRIVER", made)
    patch.setattr(compiler, "compile_ptx", made.compile)
    patch.setattr(compiler, "is_cached", lambda kernel, target: True)
    forget()
    yield made
    forget()
