"""Runs plans on the GPU: machine code from `compile`, torch tensors by raw pointer, torch's current stream."""

import ctypes
import functools
import struct
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import torch
from cuda.bindings import driver

from ..tensor_map import MAP_BYTES, TensorMap
from ..version import SYNC, Buffer, Launch, Plan, Sync, Unsupported
from . import kept
from .compile import assembled, compile_ptx, entry_name, require_block_shared, require_target

ALIGNMENT = 256
DEFAULT_SHARED_LIMIT = 49_152
PORTABLE_CLUSTER = 8  # blocks, on every GPU that has clusters
GREEN_SINCE = 12_040  # of the driver
TORCH_DTYPES = {name: getattr(torch, name) for name in ("float32", "float16", "bfloat16", "uint8", "int32")}
NAN_BITS = 0xFF  # of a float8, which is kept as its bits
C_FORMATS = {"uint32": "I", "int32": "i", "cint": "i", "cuint": "I", "float32": "f", "uint64": "Q"}  # of struct
_library = functools.cache(lambda: ctypes.CDLL("libcuda.so.1"))
ADDRESS, MAP = "Q", f"{MAP_BYTES}s"  # a tensor map is passed by value


class GpuError(RuntimeError):
    """The driver refused a call, or there is no GPU to run on; `code` is the driver's name of the error, or empty."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


def _check(result: tuple[Any, ...]) -> Any:
    code, *values = result
    if code != driver.CUresult.CUDA_SUCCESS:
        raise GpuError(f"the CUDA driver answered {code.name}", code.name)
    return values[0] if len(values) == 1 else values


class Driver:
    """The CUDA driver, and torch's state of it: all that is asked of a card. Tests put another in place of DRIVER."""

    api: Any = driver  # the bindings
    on: Any = torch.cuda.device
    available, begin = staticmethod(torch.cuda.is_available), staticmethod(torch.cuda.init)
    capability, torch_stream = staticmethod(torch.cuda.get_device_capability), staticmethod(torch.cuda.current_stream)
    # Of torch, without the question whether CUDA has begun, as it has there; builds without CUDA lack both.
    current_device: Any = getattr(torch._C, "_cuda_getDevice", None)
    current_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)

    @functools.cached_property
    def launch(self) -> Any:
        """The driver's cuLaunchKernelEx without the work that the bindings do on every call."""
        entry = _library().cuLaunchKernelEx
        entry.argtypes = (ctypes.c_void_p,) * 4
        return entry

    def card_of(self, x: torch.Tensor) -> int:
        """The index of the CUDA device that a tensor is on; -1 elsewhere."""
        return x.get_device() if x.is_cuda else -1

    def capturing(self) -> bool:
        """Whether a CUDA graph is being captured on the current stream."""
        return self.available() and torch.cuda.is_current_stream_capturing()

    def load(self, ptx: str, target: str) -> Any:
        """The driver's function for the one kernel in `ptx`, in the context of the current device."""
        torch.zeros(1, device="cuda")  # makes torch's context current
        module = _check(self.api.cuModuleLoadData(assembled(ptx, target)))
        return _check(self.api.cuModuleGetFunction(module, entry_name(ptx).encode()))

    def encode_map(self, of: TensorMap, address: int) -> bytes:
        """The driver's form of a map of 2-byte elements that begin at `address`. Raises: GpuError."""
        room = (ctypes.c_uint8 * (MAP_BYTES + 63))()
        place = -(-ctypes.addressof(room) // 64) * 64
        rank, swizzle = len(of.sizes), {0: 0, 32: 1, 64: 2, 128: 3}[of.swizzle]
        wide, narrow = (lambda x, kind=kind: (kind * len(x))(*x) for kind in (ctypes.c_uint64, ctypes.c_uint32))
        float16, promote_256_bytes, plain, zeros = 6, 3, 0, 0
        code = _library().cuTensorMapEncodeTiled(
            ctypes.c_void_p(place), float16, rank, ctypes.c_void_p(address), wide(of.sizes), wide(of.strides),
            narrow(of.box), narrow([1] * rank), plain, swizzle, promote_256_bytes, zeros,
        )  # fmt: skip
        _check((driver.CUresult(code), None))
        return ctypes.string_at(place, MAP_BYTES)


DRIVER = Driver()


def require_gpu() -> torch.device:
    """The current CUDA device. Raises: GpuError when there is none."""
    if not DRIVER.available():
        raise GpuError("no CUDA GPU is visible to torch on this machine; measuring needs one")
    DRIVER.begin()
    return torch.device("cuda", DRIVER.current_device())


def device_target() -> str:
    """The compile target of the current device, such as "sm_90"."""
    return _target(require_gpu().index)


@kept
def _target(device: int) -> str:
    major, minor = DRIVER.capability(device)
    return f"sm_{major}{minor}"


@kept
def _attribute(name: str, device: int) -> int:
    attribute = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return int(_check(DRIVER.api.cuDeviceGetAttribute(attribute, device)))


def multiprocessors(device: int) -> int:
    return _attribute("MULTIPROCESSOR_COUNT", device)


def stream_id(stream: int) -> int:
    """The driver's id of a stream: another stream may have its handle one day, none has its id.

    Not of a stream that is captured: the driver refuses that, and ends the capture.
    """
    return int(_check(DRIVER.api.cuStreamGetId(stream)))


def green_sms(stream: int) -> int:
    """The multiprocessors of the green context that a stream is of, or on stream 0 that is current; else 0."""
    if _check(DRIVER.api.cuDriverGetVersion()) < GREEN_SINCE:
        return 0
    context = _check(DRIVER.api.cuStreamGetGreenCtx(stream))
    if not int(context):
        return 0
    kind = driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
    return int(_check(DRIVER.api.cuGreenCtxGetDevResource(context, kind)).sm.smCount)


def waits_for_launch(ptx: str) -> bool:
    """Whether a kernel itself waits for the launch before it, so that it may start early."""
    return "griddepcontrol.wait" in ptx


# By the current device as well, since a function belongs to the context that it was loaded in.
_loaded = kept(lambda ptx, device: DRIVER.load(ptx, _target(device)))


def load_ptx(ptx: str) -> Any:
    """The driver's function for the one kernel in `ptx`, on the current device."""
    return _loaded(ptx, require_gpu().index)


def _require_clusters(function: Any, config: Any, cluster: int) -> None:
    """Raises: Unsupported where not one cluster of that many blocks fits where the configuration launches to."""
    code, fitting = DRIVER.api.cuOccupancyMaxActiveClusters(function, config)
    if code != driver.CUresult.CUDA_ERROR_INVALID_CLUSTER_SIZE and _check((code, fitting)) > 0:
        return
    most = _check(DRIVER.api.cuOccupancyMaxPotentialClusterSize(function, config))
    template = "a launch needs clusters of {needed} blocks, this GPU takes clusters of up to {allowed} of them"
    raise Unsupported("cluster", cluster, int(most), template)


def formats_of(launch: Launch, maps: Container[str] = ()) -> list[str]:
    """The format (of struct) of each argument of a launch: of a buffer its address, of `maps` their bytes."""
    arguments = zip(launch.args, launch.kernel.parameters, strict=True)
    return [MAP if argument in maps else C_FORMATS.get(str(kind), ADDRESS) for argument, kind in arguments]


def laid_out(formats: Sequence[str]) -> tuple[struct.Struct, list[int]]:
    """Arguments one after the other, and where each begins."""
    ends = [struct.calcsize("@" + "".join(formats[: count + 1])) for count in range(len(formats))]
    offsets = [end - struct.calcsize(each) for end, each in zip(ends, formats, strict=True)]
    return struct.Struct("@" + "".join(formats)), offsets


def configure(function: Any, launch: Launch, early: bool = False) -> Any:
    """The driver's configuration of a launch to torch's current stream; also sets the function's attributes.

    early: whether it may start before the launch before it is complete, which it waits for itself

    Raises:
        Unsupported: the GPU has less shared memory for a block, or takes no cluster of that size; with both numbers.
    """
    shared_bytes, cluster = launch.dynamic_bytes, launch.cluster
    name = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
    declared = int(_check(DRIVER.api.cuFuncGetAttribute(name, function)))  # by the kernel itself
    if declared + shared_bytes > DEFAULT_SHARED_LIMIT:
        limit = _attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", DRIVER.current_device())
        require_block_shared(declared + shared_bytes, limit)
        name = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        needed = max(shared_bytes, _check(DRIVER.api.cuFuncGetAttribute(name, function)))  # of earlier launches too
        _check(DRIVER.api.cuFuncSetAttribute(function, name, min(needed, limit - declared)))
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = (*launch.grid, 1, 1)[:3]
    config.blockDimX, config.blockDimY, config.blockDimZ = (*launch.block, 1, 1)[:3]
    config.sharedMemBytes = shared_bytes
    config.hStream = DRIVER.current_stream(DRIVER.current_device())  # a slice takes smaller clusters
    attributes = []
    if cluster > 1:
        if cluster > PORTABLE_CLUSTER:
            name = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            _check(DRIVER.api.cuFuncSetAttribute(function, name, 1))
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z = cluster, 1, 1
        config.attrs, config.numAttrs = [attribute], 1
        _require_clusters(function, config, cluster)
        attributes.append(attribute)
    if early:
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attribute.value.programmaticStreamSerializationAllowed = 1
        attributes.append(attribute)
    if attributes:
        config.attrs = attributes
    config.numAttrs = len(attributes)
    return config


def launcher(function: Any, config: Any, addresses: Sequence[int], cells: Any) -> Callable[[], None]:
    """A bare driver launch to torch's current stream at the time of the call; `cells` holds what `addresses` are of."""
    pointers = (ctypes.c_void_p * len(addresses))(*addresses)
    launch_kernel, current_raw_stream = DRIVER.launch, DRIVER.current_stream
    device, configuration, handle = DRIVER.current_device(), config.getPtr(), int(function)
    parameters, last_stream = ctypes.addressof(pointers), int(config.hStream)

    def launch(_alive: Any = (config, pointers, cells)) -> None:
        nonlocal last_stream
        stream = current_raw_stream(device)
        if stream != last_stream:
            config.hStream = last_stream = stream
        code = launch_kernel(configuration, handle, parameters, None)
        if code:
            name = driver.CUresult(code).name
            raise GpuError(f"the CUDA driver answered {name} to a launch", name)

    return launch


def prepare_launch(
    function: Any, launch: Launch, values: Sequence[Any], maps: Container[str] = (), early: bool = False
) -> Callable[[], None]:
    """A launch with prebuilt arguments, to torch's current stream at the time of the call. Raises: Unsupported."""
    config = configure(function, launch, early)
    layout, offsets = laid_out(formats_of(launch, maps))
    cells = ctypes.create_string_buffer(layout.pack(*values))
    return launcher(function, config, [ctypes.addressof(cells) + offset for offset in offsets], cells)


class BufferSet:
    """One allocation that holds all buffers of a plan, each 256-byte aligned; `inputs` are arrays or tensors."""

    def __init__(self, plan: Plan, inputs: Mapping[str, Any], copies: int = 1) -> None:
        device = require_gpu()
        buffers = plan.buffers or {name: Buffer(x.shape, plan.problem.dtype) for name, x in inputs.items()}
        self.offsets, end = {}, 0
        for name, buffer in buffers.items():
            self.offsets[name] = end
            end += -(-(buffer.size + buffer.padding) * TORCH_DTYPES[buffer.dtype].itemsize // ALIGNMENT) * ALIGNMENT
        self.arena = torch.empty((copies, end), dtype=torch.uint8, device=device)
        self.buffers = buffers
        for name, buffer in buffers.items():
            padded = self._view(0, name, padded=True)
            padded.fill_(float("nan") if padded.is_floating_point() else NAN_BITS)
            contents = buffer.init() if buffer.init else inputs.get(name)
            if contents is not None:
                self[0, name].copy_(torch.as_tensor(contents))
        self.arena[1:] = self.arena[:1]
        self.maps = {name: buffer.tensor_map for name, buffer in buffers.items() if buffer.tensor_map is not None}

    def _view(self, copy: int, name: str, padded: bool = False) -> torch.Tensor:
        buffer = self.buffers[name]
        dtype = TORCH_DTYPES[buffer.dtype]
        start = self.offsets[name]
        count = buffer.size + (buffer.padding if padded else 0)
        flat = self.arena[copy, start : start + count * dtype.itemsize].view(dtype)
        return flat if padded else flat.view(buffer.shape)

    def __getitem__(self, key: tuple[int, str]) -> torch.Tensor:
        """Buffer `name` of copy `copy`, as a tensor of its shape."""
        return self._view(*key)

    def argument(self, copy: int, name: str) -> int | bytes:
        """The argument of a launch for a buffer: its address, or the tensor map that it describes."""
        if name in self.maps:
            return DRIVER.encode_map(self.maps[name], self[copy, self.maps[name].buffer].data_ptr())
        return self[copy, name].data_ptr()

    def __len__(self) -> int:
        return self.arena.shape[0]


class Program:
    """A plan on the GPU over one or more copies of its buffers, launches prepared.

    A peer's call ends with a host sync, as each call of the log's RoPE harness does.
    """

    def __init__(self, plan: Plan, inputs: Mapping[str, Any], copies: int = 1) -> None:
        self.plan = plan
        self.buffers = BufferSet(plan, inputs, copies)
        self._out: torch.Tensor | None = None
        steps = [self._prepare(step) for step in (plan.steps if plan.call is None else (plan.call, SYNC))]
        self._steps = [tuple(step(copy) for step in steps) for copy in range(copies)]

    def _prepare(self, step: Any) -> Callable[[int], Callable[[], object]]:
        """A function that prepares a step for a copy of the buffers; all copies share a launch's preparation."""
        if isinstance(step, Sync):
            return lambda copy: torch.cuda.synchronize
        if isinstance(step, Launch):
            return self._prepare_launch(step)
        return lambda copy: self._call(step, copy)

    def _call(self, attend: Callable[..., torch.Tensor], copy: int) -> Callable[[], None]:
        q, k, v = (self.buffers[copy, name] for name in "qkv")

        def call() -> None:
            self._out = attend(q, k, v)

        return call

    def _prepare_launch(self, launch: Launch) -> Callable[[int], Callable[[], None]]:
        target = device_target()
        require_target(launch, target)
        ptx = compile_ptx(launch.kernel, target)
        function, early = load_ptx(ptx), waits_for_launch(ptx)

        def prepared(copy: int) -> Callable[[], None]:
            values = [self.buffers.argument(copy, x) if isinstance(x, str) else x for x in launch.args]
            return prepare_launch(function, launch, values, self.buffers.maps, early)

        return prepared

    def launch(self, copy: int = 0) -> None:
        """Everything the plan launches, with no host sync: what a CUDA graph captures."""
        for step in self._steps[copy]:
            if step is not torch.cuda.synchronize:
                step()

    def call(self) -> None:
        """One call as the source's harness makes it, host syncs included."""
        for step in self._steps[0]:
            step()

    def output(self) -> torch.Tensor:
        """Launch once on the first copy, wait, and return the output."""
        self.launch()
        torch.cuda.synchronize()
        return self.buffers[0, "out"] if self.plan.call is None else self._out
