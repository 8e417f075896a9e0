"""The made-up cards, and how long they say that something takes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.measure.machine import slug
from analysis.measure.timing import Timing
from kernels import Plan, Problem

GIB = 1 << 30
MIB = 1 << 20
LAUNCH_US = 1.5  # on the device, of each launch
HOST_US = 6.0  # on the host, of each launch and of each wait


@dataclass(frozen=True)
class Card:
    """A card with round figures, of no model that there is."""

    capability: str
    sms: int
    memory_gib: int
    l2_mib: int
    dram_gb_s: float
    fp32_tflops: float

    @property
    def name(self) -> str:
        return f"Made-up {self.capability}"

    @property
    def slug(self) -> str:
        return slug(self.name)

    @property
    def target(self) -> str:
        return "sm_" + self.capability.replace(".", "")

    def identity(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "slug": self.slug,
            "compute_capability": self.capability,
            "sms": self.sms,
            "memory_bytes": self.memory_gib * GIB,
            "l2_bytes": self.l2_mib * MIB,
        }

    def ceilings(self) -> dict[str, float]:
        return {
            "read_gb_s": 0.9 * self.dram_gb_s,
            "write_gb_s": 0.87 * self.dram_gb_s,
            "copy_gb_s": 0.83 * self.dram_gb_s,
            "l2_read_gb_s": 3.1 * self.dram_gb_s,
            "fp32_tflops": 0.93 * self.fp32_tflops,
            "tensor_tflops": 4.7 * self.fp32_tflops,
            "empty_kernel_us": 0.731,
            "empty_launch_us": 3.917,
            "one_tile_gemm_us": 2.631,
            "one_tile_gemm_launch_us": 11.37,
            "all_tiles_gemm_us": 9.173,
        }

    def gpu(self) -> dict[str, Any]:
        """What gpu.json holds."""
        uuid = "GPU-" + hashlib.sha256(self.name.encode()).hexdigest()[:32]
        return {**self.identity(), "uuid": uuid, "made_up": True, "ceilings": self.ceilings()}

    def device_us(self, version: str, plan: Plan) -> float:
        """One call with warm caches: the slower of its products at a fifth of fp32 and its bytes, times a factor."""
        problem = plan.problem
        work = problem.flops / (0.2 * self.fp32_tflops * 1e6)
        moved = touched(problem) / (self.dram_gb_s * 1e3)
        launches = max(len(plan.launches), 1)
        return LAUNCH_US * launches + max(work, moved) * drawn(0.5, 3.0, self.name, version, problem.hdim)

    def timing(self, version: str, plan: Plan, timer: str, process: int) -> Timing:
        """What one process measures of a call."""
        us = self.device_us(version, plan)
        if timer == "device_cold":
            us = 1.2 * us + touched(plan.problem) / (self.dram_gb_s * 1e3)
        elif timer == "launched":
            us += HOST_US * max(len(plan.steps), 1)
        us *= drawn(0.995, 1.005, self.name, version, plan.problem, timer, process)
        return Timing(15, 0.99 * us, us, 1.02 * us)


def touched(problem: Problem) -> int:
    """Bytes of q, k, v and out, each once."""
    queries = problem.batch * problem.heads * problem.seq_q
    keys = problem.batch * problem.kv_heads * problem.seq_k
    return 2 * (queries + keys) * problem.hdim * np.dtype(problem.dtype).itemsize


def share(*key: object) -> float:
    """A number in [0, 1) that belongs to a key."""
    return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:6], "big") / 2**48


def drawn(low: float, high: float, *key: object) -> float:
    """A factor between two that belongs to a key, as likely in each octave."""
    return low * math.exp(share(*key) * math.log(high / low))


CARDS: Mapping[str, Card] = {
    card.capability: card
    for card in (
        Card("7.5", sms=34, memory_gib=15, l2_mib=4, dram_gb_s=310, fp32_tflops=7.3),
        Card("8.0", sms=96, memory_gib=38, l2_mib=32, dram_gb_s=1430, fp32_tflops=17.6),
        Card("8.9", sms=68, memory_gib=23, l2_mib=40, dram_gb_s=530, fp32_tflops=31.7),
        Card("10.0", sms=140, memory_gib=170, l2_mib=112, dram_gb_s=7100, fp32_tflops=73.1),
        Card("12.0", sms=158, memory_gib=30, l2_mib=88, dram_gb_s=1610, fp32_tflops=97.3),
    )
}
