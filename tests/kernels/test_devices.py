"""The GPU's runtime on a driver that is made up: several GPUs, and clusters that do not fit."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from cuda.bindings import driver
from made_up_driver import Present

from kernels import Unsupported
from kernels.runtime import forget, gpu
from kernels.runtime.gpu import GpuError, device_target, load_ptx, prepare_launch
from kernels.version import Kernel, Launch, SharedLayout

OK = driver.CUresult.CUDA_SUCCESS
PTX = ".target sm_75\n.entry touch() { ret; }"


class Machine(Present):
    """Two GPUs, and what their driver is asked. `clusters` is what it answers about clusters."""

    capabilities = ((9, 0), (7, 5))
    shared = (232_448, 65_536)

    def __init__(self) -> None:
        self.api = self
        self.clusters: tuple[driver.CUresult, int] = (OK, 1)
        self.largest_cluster = 8
        self.declared = 0
        self.asked: list[str] = []
        self.configured: list[tuple[str, int]] = []
        self.attributes: dict[tuple[object, Any], int] = {}

    def capability(self, device: int) -> tuple[int, int]:
        return self.capabilities[device]

    def launch(self, *arguments: Any) -> int:
        return 0

    def cuModuleLoadData(self, code: bytes) -> tuple[driver.CUresult, str]:
        return OK, f"{code.decode()} on GPU {self.device}"

    def cuModuleGetFunction(self, module: str, name: bytes) -> tuple[driver.CUresult, str]:
        return OK, f"{name.decode()} for {module}"

    def cuDeviceGetAttribute(self, attribute: object, device: int) -> tuple[driver.CUresult, int]:
        return OK, self.shared[device]

    def cuFuncSetAttribute(self, function: object, attribute: Any, value: int) -> tuple[driver.CUresult]:
        self.configured.append((attribute.name, value))
        self.attributes[function, attribute] = value
        return (OK,)

    def cuFuncGetAttribute(self, attribute: Any, function: object) -> tuple[driver.CUresult, int]:
        default = self.declared if attribute.name == "CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES" else 49_152
        return OK, self.attributes.get((function, attribute), default)

    def cuOccupancyMaxActiveClusters(self, function: object, config: Any) -> tuple[driver.CUresult, int]:
        self.asked.append(f"{config.attrs[0].value.clusterDim.x} of {config.gridDimX}, {config.sharedMemBytes} B")
        return self.clusters

    def cuOccupancyMaxPotentialClusterSize(self, function: object, config: object) -> tuple[driver.CUresult, int]:
        return OK, self.largest_cluster


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine()
    monkeypatch.setattr(gpu, "DRIVER", made)
    monkeypatch.setattr(gpu, "assembled", lambda ptx, target: target.encode())
    monkeypatch.setattr(torch, "zeros", lambda *size, device: None)
    forget()
    yield made
    forget()


def test_function_is_of_the_gpu_that_it_is_launched_on(machine: Machine) -> None:
    assert (device_target(), load_ptx(PTX)) == ("sm_90", "touch for sm_90 on GPU 0")
    machine.device = 1
    assert (device_target(), load_ptx(PTX)) == ("sm_75", "touch for sm_75 on GPU 1")
    machine.device = 0
    assert (device_target(), load_ptx(PTX)) == ("sm_90", "touch for sm_90 on GPU 0")


def prepared(function: int, grid: int = 1, shared_bytes: int = 0, cluster: int = 1) -> None:
    layout = SharedLayout(all=shared_bytes // 4)
    prepare_launch(function, Launch(Kernel(print, ()), (grid,), (128,), (), layout, cluster=cluster), ())


def test_block_gets_the_shared_memory_of_the_gpu_at_hand(machine: Machine) -> None:
    prepared(1, shared_bytes=100_000)
    machine.device = 1
    with pytest.raises(Unsupported, match="a block needs 100,000 B of shared memory, this GPU has 65,536 B") as caught:
        prepared(1, shared_bytes=100_000)
    assert (caught.value.kind, caught.value.needed, caught.value.allowed) == ("shared_memory", 100_000, 65_536)


def test_smaller_launch_takes_no_shared_memory_from_an_earlier_one_of_the_same_function(machine: Machine) -> None:
    for function, shared_bytes in ((1, 60_000), (1, 200_000), (1, 100_000), (2, 100_000)):
        prepared(function, shared_bytes=shared_bytes)
    name = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    assert machine.attributes == {(1, name): 200_000, (2, name): 100_000}


def test_declared_shared_memory_counts_with_that_of_the_launch(machine: Machine) -> None:
    machine.declared = 40_992
    prepared(1, shared_bytes=8_160)  # 48 KB in all, which need no asking
    assert machine.configured == []
    prepared(1, shared_bytes=16_384)
    assert machine.configured == [("CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES", 49_152)]
    machine.device = 1
    prepared(2, shared_bytes=16_384)
    assert machine.configured[-1][1] == 65_536 - 40_992
    with pytest.raises(Unsupported, match="a block needs 65,568 B of shared memory, this GPU has 65,536 B"):
        prepared(3, shared_bytes=24_576)


@pytest.mark.parametrize("answer", [(OK, 0), (driver.CUresult.CUDA_ERROR_INVALID_CLUSTER_SIZE, 0)])
def test_cluster_that_does_not_fit_is_refused_before_its_launch(machine: Machine, answer) -> None:
    machine.clusters = answer
    with pytest.raises(Unsupported, match="clusters of 16 blocks, this GPU takes clusters of up to 8") as caught:
        prepared(1, grid=32, shared_bytes=200_000, cluster=16)
    assert (caught.value.kind, caught.value.needed, caught.value.allowed) == ("cluster", 16, 8)
    assert machine.asked == ["16 of 32, 200000 B"]
    # What the driver is asked about may be of a size that is not portable, and as large as this.
    assert machine.configured == [("CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES", 200_000), NON_PORTABLE]


NON_PORTABLE = ("CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1)


def test_cluster_that_fits_is_launched(machine: Machine) -> None:
    prepared(1, grid=8, cluster=8)
    assert machine.asked == ["8 of 8, 0 B"] and machine.configured == []
    prepared(1, grid=8)
    assert machine.asked == ["8 of 8, 0 B"]  # without clusters nothing is asked


def test_driver_that_fails_to_answer_is_no_refusal(machine: Machine) -> None:
    machine.clusters = (driver.CUresult.CUDA_ERROR_INVALID_CONTEXT, 0)
    with pytest.raises(GpuError, match="CUDA_ERROR_INVALID_CONTEXT"):
        prepared(1, grid=8, cluster=8)
