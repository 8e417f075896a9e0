"""Run one version on one problem: check it and say what its kernels take; on a GPU, time it too."""

import argparse
import math
import statistics
from collections.abc import Iterator
from dataclasses import replace

import torch

from kernels import VERSIONS, Problem, Version
from kernels.__main__ import add_sizes, problem_of
from kernels.checking.check import case_of, emulated
from kernels.limits import EMULATED_TARGET, Share
from kernels.runtime.compile import blocks_per_sm, resources
from kernels.runtime.gpu import device_target, multiprocessors

from ..errors import DataError
from .on_gpu import CARD, check

KIND = "sharp"


def error_of(status: str, error: float, allowed: float) -> str:
    return f"{status}: error {error:.2g}, {allowed:.2g} allowed"


def on_card(version: Version, problem: Problem) -> Iterator[str]:
    row = check((version.id, problem), KIND)
    if "max_abs_err" not in row:
        yield f"{row['status']}: {row['reason']}"
        return
    yield error_of(row["status"], row["max_abs_err"], row["allowed_abs_err"])
    program = CARD.program(CARD.plan((version.id, problem)))
    median = statistics.median(CARD.measure(program, "device_warm", version.iterations))
    yield f"{median:.1f} us, the GPU alone, warm"


def in_emulator(version: Version, problem: Problem) -> Iterator[str]:
    """One KV head, and of many blocks the first few."""
    few = replace(problem, batch=1, heads=problem.heads // problem.kv_heads, kv_heads=1)
    blocks = case_of(version, few).blocks
    verdict = emulated(version(few), KIND, blocks)[3]
    where = f"in the emulator, {few}" + f", its first {blocks} blocks" * (blocks is not None)
    yield f"{error_of(verdict.status, verdict.max_abs_err, verdict.allowed_abs_err)}, {where}"


def told(version: Version, problem: Problem) -> Iterator[str]:
    """Lines. Raises: Unsupported."""
    gpu = torch.cuda.is_available()
    target, sms = (device_target(), multiprocessors(0)) if gpu else (EMULATED_TARGET, Share().sms)
    plan = version(problem, target)
    yield f"{version.id}, {problem}, {problem.dtype}; declared {plan.expected}{plan.defect and f' ({plan.defect})'}"
    yield from (on_card if gpu else in_emulator)(version, problem)
    for launch in plan.launches:
        used, held, blocks = resources(launch.kernel, target), blocks_per_sm(launch, target), math.prod(launch.grid)
        waves = f"{blocks / (held * sms):.2f} waves of {sms} SMs" if held else "more than an SM has"
        yield f"{launch.kernel.name}: {used.registers} registers, {held} blocks an SM, {blocks:,} blocks, {waves}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis run", description=__doc__)
    own = [version.id for version in VERSIONS.values() if not version.is_peer]
    parser.add_argument("version", choices=own, metavar="VERSION", help="an id, such as rope_v7")
    add_sizes(parser, heads=4, hdim=512)
    options = vars(parser.parse_args(arguments))
    version = VERSIONS[options.pop("version")]
    options["dtype"] = "float16" if version.family == "fp16" else options["dtype"]
    try:
        for line in told(version, problem_of(version.family, options)):
            print(line, flush=True)
    except ValueError as error:  # Unsupported among them
        raise DataError(str(error)) from error
    return 0
