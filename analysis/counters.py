"""Hardware counters of every kernel at the published shapes, by Nsight Compute: `python -m analysis counters`.

The profiler runs this module again as the program to be profiled: it launches every plan once to warm up and once
profiled, in the order of `cases`, so that the n-th profiled kernel is the n-th of the list. Clocks are left as they
are. Caches are left warm, as device_warm finds them, except for the DRAM counters `COLD`, which are read behind a
flush: the bytes that a call must move when nothing is cached.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from kernels import VERSIONS, Problem, Unsupported, Version
from kernels.reference import make_inputs
from kernels.runtime.compile import CompileError
from kernels.runtime.gpu import GpuError, Program
from kernels.runtime.identity import source_hash

from .data import MEASURED, DataError, problem_columns, write_table
from .gpu import identity, now
from .studies import PUBLISHED, STUDIES, studies

STALLS = (
    "barrier", "branch_resolve", "dispatch_stall", "drain", "imc_miss", "lg_throttle", "long_scoreboard",
    "math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instruction", "not_selected", "selected",
    "short_scoreboard", "sleeping", "tex_throttle", "wait",
)  # fmt: skip
WARM = (
    "gpu__time_duration.sum",
    "lts__t_bytes.sum",
    "lts__t_sector_hit_rate.pct",
    "l1tex__t_bytes.sum",
    "l1tex__t_sector_hit_rate.pct",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
    "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum",
    "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum",
    "smsp__inst_executed.sum",
    "smsp__inst_executed_pipe_xu.sum",
    "sm__inst_executed_pipe_tensor.sum",
    "smsp__thread_inst_executed_per_inst_executed.ratio",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    *(f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio" for reason in STALLS),
)
COLD = ("dram__bytes_read.sum", "dram__bytes_write.sum")
UNKNOWN_METRIC = re.compile(r"Failed to find metric (\S+)")


class Chosen(NamedTuple):
    """What to profile: names of studies, and of versions (all if empty), separated by commas."""

    study: str
    versions: str

    def arguments(self) -> tuple[str, ...]:
        return ("--study", self.study, "--versions", self.versions)


class Case(NamedTuple):
    """One kernel launch to be profiled."""

    study: str
    version: str
    problem: Problem
    launch: int
    kernel: str


def programs(chosen: Chosen) -> Iterator[tuple[str, Version, Program]]:
    """Study, version and program of everything own that can run on the GPU at hand."""
    keep = set(chosen.versions.split(",")) if chosen.versions else set(VERSIONS)
    for study in studies(chosen.study):
        for version, problem in study.pairs():
            if not version.is_peer and version.id in keep:
                with contextlib.suppress(Unsupported, CompileError, GpuError):
                    yield study.name, version, Program(version(problem), make_inputs(problem, "uniform"))


def cases(chosen: Chosen) -> list[Case]:
    return [
        Case(study, version.id, program.plan.problem, index, launch.kernel.name)
        for study, version, program in programs(chosen)
        for index, launch in enumerate(program.plan.launches)
    ]


def profiled_program(chosen: Chosen) -> None:
    """What runs under the profiler: launches each plan once to warm up and once profiled."""
    for _, _, program in programs(chosen):
        program.launch()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        program.launch()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


def profiler() -> str:
    """Path of ncu. Raises: DataError when there is none."""
    home = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin" / "ncu"
    found = shutil.which("ncu") or (str(home) if home.exists() else None)
    if not found:
        raise DataError(f"Nsight Compute (ncu) is neither on PATH nor at {home}")
    return found


def profile(chosen: Chosen, metrics: Sequence[str], cache_control: str, folder: Path) -> list[dict[str, str]]:
    """Profile every case, and return the profiler's rows: a dict a kernel, metric names to values and units.

    A metric that this GPU does not have is left out.

    Raises: DataError when the profiler fails, with the end of what it said.
    """
    metrics = list(metrics)
    log = folder / f"{cache_control}.csv"
    while True:
        command = [
            profiler(), "--profile-from-start", "off", "--clock-control", "none", "--cache-control", cache_control,
            "--csv", "--page", "raw", "--print-units", "base", "--metrics", ",".join(metrics), "--log-file", str(log),
            sys.executable, "-m", "analysis", "counters", "--profiled", *chosen.arguments(),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True)
        said = done.stdout + done.stderr + (log.read_text() if log.exists() else "")
        unknown = UNKNOWN_METRIC.findall(said)
        if not unknown:
            break
        metrics = [name for name in metrics if name not in unknown]
    if done.returncode:
        raise DataError(f"ncu ended with {done.returncode}: {said[-2000:]}")
    return parse(log.read_text())


def parse(text: str) -> list[dict[str, str]]:
    """Rows of ncu's raw CSV page; the first behind the header holds the units.

    Raises: DataError when there is no table.
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]
    if len(lines) < 2:
        raise DataError(f"ncu printed no table: {text[-500:]}")
    return list(csv.DictReader(lines))


def tidy(profiled: Sequence[dict[str, str]], expected: Sequence[Case], metrics: Sequence[str]) -> list[dict[str, Any]]:
    """A row a case and metric.

    Raises: DataError when the profiler saw other kernels than the program launched.
    """
    units, *kernels = profiled
    seen = [row["Kernel Name"] for row in kernels]
    if len(seen) != len(expected) or any(case.kernel not in name for case, name in zip(expected, seen, strict=False)):
        raise DataError(f"ncu saw {len(seen)} kernels where {len(expected)} were launched, or in another order")
    rows = []
    for case, row in zip(expected, kernels, strict=True):
        for metric in metrics:
            text = row.get(metric, "").replace(",", "")
            try:
                value = float(text)
            except ValueError:
                continue
            columns = {"study": case.study, "version": case.version, **problem_columns(case.problem)}
            measured = {"metric": metric, "value": value, "unit": units.get(metric, "")}
            hashed = {"source_hash": source_hash(VERSIONS[case.version])}
            rows.append({**columns, "launch": case.launch, "kernel": case.kernel, **measured, **hashed})
    return rows


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis counters", description=__doc__.splitlines()[0])
    parser.add_argument("--study", default=PUBLISHED, help=f"some of, separated by commas: {', '.join(STUDIES)}")
    parser.add_argument("--profiled", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--versions", default="", help="only these, separated by commas; the file keeps no others")
    options = parser.parse_args(arguments)
    chosen = Chosen(options.study, options.versions)
    try:
        if options.profiled:
            profiled_program(chosen)
            return 0
        run, gpu = now().replace("-", "").replace(":", ""), identity()
        expected = cases(chosen)
        rows = []
        with tempfile.TemporaryDirectory() as folder:
            for metrics, cache_control, suffix in ((WARM, "none", ""), (COLD, "all", ", cold")):
                print(f"[counters] {len(expected)} kernels, caches {suffix.strip(', ') or 'warm'}", flush=True)
                for row in tidy(profile(chosen, metrics, cache_control, Path(folder)), expected, metrics):
                    rows.append({"run": run, **row, "metric": row["metric"] + suffix})
        path = MEASURED / gpu["slug"] / "counters.csv"
        write_table(path, "counters", rows)
    except (DataError, GpuError, ValueError) as error:
        print(f"counters: {error}", file=sys.stderr)
        return 1
    print(f"[counters] {len(rows)} rows in {path}")
    return 0
