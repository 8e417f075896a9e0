"""The ops in a slice of the card, on a driver that is made up: it answers, and refuses launches, by stream."""

import contextlib
import ctypes
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from cuda.bindings import driver
from test_ops_launch import use

from kernels import rope_attention, warm_up
from kernels.limits import Share
from kernels.op import arguments
from kernels.runtime import compile as compiler
from kernels.runtime import gpu, streams

OK, TOO_LARGE = driver.CUresult.CUDA_SUCCESS, driver.CUresult.CUDA_ERROR_INVALID_CLUSTER_SIZE
NOT_IN_CAPTURE = driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
CLUSTER_DIM = int(driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
CONFIG = ctypes.c_uint32 * 8  # grid, block, shared memory; then the stream, and the address and number of attributes
ATTRIBUTE_BYTES = 72


class Stream(NamedTuple):
    """`sms` of its green context, 0 on the whole card; the largest `cluster` there; whether it is `torchs` own."""

    id: int
    sms: int = 0
    cluster: int = 16
    torchs: bool = False


class Driver:
    """A driver of one H100 and some streams by handle; `current` is the stream that 0 stands for."""

    device = tensor_device = 0
    version = 13_000

    def __init__(self) -> None:
        self.stream, self.current = 0, Stream(0)
        self.streams: dict[int, Stream] = {}
        self.names: list[str] = []
        self.launched: list[tuple[int, int, int]] = []  # cluster, blocks and stream of each launch
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(driver, name)

    def of(self, stream: Any) -> Stream:
        return self.streams.get(int(stream), self.current)

    def cuDriverGetVersion(self) -> Any:
        return OK, self.version

    def cuStreamGetId(self, stream: int) -> Any:
        self.asked += 1
        return (NOT_IN_CAPTURE, 0) if streams.capturing() else (OK, self.of(stream).id)

    def cuStreamGetGreenCtx(self, stream: int) -> Any:
        assert self.version >= 12_040
        self.asked += 1
        return OK, self.of(stream).sms  # the handle of the context is the number of its SMs

    def cuGreenCtxGetDevResource(self, context: int, kind: Any) -> Any:
        assert kind == driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
        return OK, SimpleNamespace(sm=SimpleNamespace(smCount=context))

    def cuDeviceGetAttribute(self, attribute: Any, device: int) -> Any:
        return OK, 132 if "MULTIPROCESSOR_COUNT" in attribute.name else 232_448

    def cuFuncSetAttribute(self, function: int, attribute: Any, value: int) -> Any:
        return (OK,)

    def cuFuncGetAttribute(self, attribute: Any, function: int) -> Any:
        return OK, 0

    def cuOccupancyMaxActiveClusters(self, function: int, config: Any) -> Any:
        fits = config.attrs[0].value.clusterDim.x <= self.of(config.hStream).cluster
        return (OK, 1) if fits else (TOO_LARGE, 0)

    def cuOccupancyMaxPotentialClusterSize(self, function: int, config: Any) -> Any:
        return OK, self.of(config.hStream).cluster

    def load(self, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    def launch(self, config: int, handle: int, parameters: int, extra: None) -> int:
        x, y, z, *_ = CONFIG.from_address(config)
        stream, attributes, count = (ctypes.c_uint64.from_address(config + at).value for at in (32, 40, 48))
        cluster = 1
        for at in range(attributes, attributes + (count & 0xFFFFFFFF) * ATTRIBUTE_BYTES, ATTRIBUTE_BYTES):
            if ctypes.c_uint32.from_address(at).value == CLUSTER_DIM:
                cluster = ctypes.c_uint32.from_address(at + 8).value
        self.launched.append((cluster, x * y * z, stream))
        return int(OK if cluster <= self.of(stream).cluster else TOO_LARGE)

    def largest(self, *arguments: Any) -> int:
        """The largest cluster of the launches of `call(*arguments)`, which all go to the current stream."""
        self.launched.clear()
        call(*arguments)
        assert self.launched and {stream for _, _, stream in self.launched} == {self.stream}
        return max(cluster for cluster, _, _ in self.launched)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    torchs_name = lambda device: SimpleNamespace(stream_id=1 if made.of(made.stream).torchs else made.stream)  # noqa: E731
    own = (
        (gpu, "driver", made),
        (streams, "share_of", streams.share_of),
        (streams, "_lasting", {}),
        (streams, "_others", {}),
        (torch.cuda, "current_stream", torchs_name),
        (torch.cuda, "device", contextlib.nullcontext),
        (compiler, "compile_ptx", lambda kernel, target: kernel.name),
        (gpu, "encode_map", lambda *_: bytes(128)),
    )
    use(made, monkeypatch, *own)
    streams._whole.cache_clear()
    gpu.multiprocessors.cache_clear()
    gpu._attribute.cache_clear()
    return made


def call(hdim: int = 4096, dtype: torch.dtype = torch.float32, seq_q: int = 64, seq_k: int = 64) -> None:
    q, k = (torch.zeros(1, 4, seq, hdim, dtype=dtype) for seq in (seq_q, seq_k))
    rope_attention(q, k, k, fallback=False)


@pytest.mark.parametrize("sms", [8, 24, 48, 128])
def test_slice_is_launched_clusters_that_it_takes(card: Driver, sms: int) -> None:
    card.stream, card.streams = 96, {96: Stream(7, sms, 8)}
    for hdim in (64, 128, 256, 512, 1024, 2048, 4096, 8192, 12_288):
        for seq in (16, 64, 300):
            assert card.largest(hdim, torch.float32, seq, seq) <= 8
    for hdim in (64, 128, 256):
        for seq_q in (1, 64, 500):
            assert card.largest(hdim, torch.float16, seq_q, 500) == 1


def test_slice_of_large_clusters_and_whole_card_are_launched_16(card: Driver) -> None:
    assert card.largest() == 16
    card.stream, card.streams = 96, {96: Stream(7, 64, 16)}
    assert card.largest() == 16


def test_decode_splits_keys_over_the_multiprocessors_of_the_slice(card: Driver) -> None:
    def blocks() -> int:
        card.launched.clear()
        call(128, torch.float32, 1, 100_000)
        return card.launched[0][1]

    whole = blocks()
    card.stream, card.streams = 96, {96: Stream(7, 24, 8)}
    assert (whole, blocks()) == (256, 32)


def test_stream_handle_used_again_is_asked_again(card: Driver) -> None:
    card.stream = 96
    for stream, largest in ((Stream(7, 48, 8), 8), (Stream(8), 16), (Stream(9, 64, 4), 4), (Stream(10, 48, 8), 8)):
        card.streams = {96: stream}
        assert card.largest() == largest == card.largest()


def test_torchs_own_streams_are_asked_once(card: Driver) -> None:
    made_in_green = Stream(4, 48, 8, torchs=True)
    card.streams = {64: Stream(3, torchs=True), 65: made_in_green}
    for card.stream in (0, 64, 65):
        call()
    asked = card.asked
    for card.stream, largest in ((0, 16), (64, 16), (65, 8)):
        assert card.largest() == largest
    assert card.asked == asked > 0


@pytest.mark.parametrize("seen_whole", [True, False])
def test_green_context_that_is_current_on_stream_0_is_found_where_it_refuses(card: Driver, seen_whole: bool) -> None:
    if seen_whole:
        assert card.largest() == 16
    card.current = Stream(1, 48, 8)
    card.launched.clear()
    call()
    assert card.launched[-1][0] == 8
    card.current = Stream(0)
    assert card.largest() == 16


def test_driver_before_green_contexts_is_not_asked_for_them(card: Driver) -> None:
    card.version, card.stream, card.streams = 12_020, 96, {96: Stream(7)}
    assert card.largest() == 16


def test_warm_up_loads_what_calls_in_the_current_slice_launch(card: Driver) -> None:
    card.stream, card.streams = 96, {96: Stream(7, 48, 8)}
    count = warm_up(4, 4, 2048, dtype=torch.float32, seq_q=(16, 64), device="cpu")
    loaded = list(card.names)
    assert len(loaded) == count + 1 and streams.PROBE in loaded
    for seq in (16, 64):
        assert card.largest(2048, torch.float32, seq, seq) <= 8
    assert card.names == loaded


def test_capture_in_a_slice_replays_what_a_call_there_has_loaded(card: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    assert card.largest() == 16
    card.stream, card.streams = 96, {96: Stream(7, 48, 8), 97: Stream(8, 48, 8)}
    with monkeypatch.context() as capture:
        capture.setattr(streams, "capturing", lambda: True)
        with pytest.raises(RuntimeError, match="on tensors and a slice of the card alike, before the capture"):
            call()
    call()
    loaded = list(card.names)
    monkeypatch.setattr(streams, "capturing", lambda: True)
    for card.stream in (96, 97):
        assert card.largest() == 8
    assert card.names == loaded


def test_mig_instance_that_takes_small_clusters_is_planned_for(card: Driver) -> None:
    card.current = Stream(0, cluster=4)  # the whole card, as the process sees it
    assert card.largest() == 4
    assert streams.share_of(0) == Share(132, 4)


def test_settled_calls_of_two_slices_keep_plans_apart(card: Driver) -> None:
    card.streams = {96: Stream(7, 48, 8), 97: Stream(8, 40, 2)}
    for _ in range(2):
        for card.stream, largest in ((96, 8), (97, 2), (0, 16)):
            assert card.largest() == largest
    (settled,) = arguments._settled.values()
    assert {*settled.launches} == {Share(48, 8), Share(40, 2), Share(132, 16), 0}
