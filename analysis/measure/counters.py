"""Hardware counters of every kernel at the published shapes, by Nsight Compute: `python -m analysis counters`.

Only what the book shows (`PROFILED`) and is missing, or was recorded of other code, is profiled, and written after
every `CHUNK` problems; `--new-run` profiles anew. The profiler runs this module again as the program to be profiled: it
launches every plan once to warm up and once profiled, so that the n-th profiled kernel is the n-th launch of what it
says it launched. Clocks are left as they are, and caches warm, as device_warm finds them. More counters than fit in one
pass make the profiler replay a kernel; it saves and restores memory for that, which cools the caches. So what depends
on them, above all the bytes of DRAM, is in a group of its own, whose few counters need no replay. The last group is
read after a flush: the bytes that a call must move when nothing is cached. No counter is one that patches the code.
"""

import argparse
import contextlib
import csv
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from kernels import VERSIONS, Problem, Unsupported
from kernels.checking.check import supports
from kernels.checking.reference import make_inputs
from kernels.runtime.gpu import Program, device_target

from ..errors import DataError, Refused
from ..evidence.current import Row, current, identity
from ..record import cards, records
from ..record.problems import problem_columns, problem_of
from ..studies import PROFILED, STALL, STALLS, studies
from .machine import toolkit
from .run import Writer, at_card, compile_pair, to_compile
from .workers import compilers

ONCE = (
    "gpu__time_duration.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "lts__t_sectors_srcunit_tex.sum",
    "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "smsp__issue_active.avg.pct_of_peak_sustained_active",
)
REPLAYED = (
    "l1tex__t_bytes.sum",
    "l1tex__t_sector_hit_rate.pct",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "smsp__thread_inst_executed_pipe_xu_pred_on.sum",
    "smsp__inst_executed.sum",
    "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    *(STALL.format(reason) for reason in STALLS),
)
COLD = ("dram__bytes_read.sum", "dram__bytes_write.sum")


class Group(NamedTuple):
    """Metrics that are collected together: what ncu flushes before a pass, and what is added to their names."""

    metrics: tuple[str, ...]
    flushed: str = "none"
    mark: str = ""


GROUPS = (Group(ONCE), Group(REPLAYED), Group(COLD, flushed="all", mark=", cold"))
METRICS = tuple(metric + group.mark for group in GROUPS for metric in group.metrics)

CHUNK = 100  # problems that are profiled, and recorded, at a time: each begins a process for every group
HOPELESS = 3  # after so many versions that fail before anything was profiled, the fault is not theirs
UNKNOWN_METRIC = re.compile(r"Failed to find metric (\S+)")
THOUSANDS = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d+)?")
FORBIDDEN = "ERR_NVGPUCTRPERM"


class Task(NamedTuple):
    """A task of the profiler: all launches of a version on a problem."""

    study: str
    version: str
    problem: Problem

    def __str__(self) -> str:
        return f"{self.version} on {self.problem}"


class ProfileError(Exception):
    """One of the tasks kept the profiler from seeing what was to be profiled; the message says what it saw."""


def tasks(sms: int) -> list[Task]:
    """Each version and problem of `PROFILED` once, on a card with `sms` SMs."""
    found: dict[tuple[str, Problem], Task] = {}
    for names, among, hdims in PROFILED:
        for each in studies(names):
            for name, problem in each.on(sms).pairs():
                asked = name in (among or VERSIONS) and problem.hdim in (hdims or [problem.hdim])
                if asked and not VERSIONS[name].is_peer and supports(VERSIONS[name], problem):
                    found.setdefault((name, problem), Task(each.name, name, problem))
    return list(found.values())


def launch_all(folder: Path) -> None:
    """Process under the profiler: launches each task of `folder`/tasks.json once to warm up and once profiled.

    Writes launched.json: for each task the names of its kernels, none where this GPU cannot run it.
    """
    launched: list[list[str]] = []
    for version, columns in json.loads((folder / "tasks.json").read_text("utf-8")):
        problem = Problem(**columns)
        try:
            plan = VERSIONS[version](problem, device_target())
            program = Program(plan, make_inputs(problem, "uniform"))
            program.launch()
        except Unsupported:
            launched.append([])
            continue
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        program.launch()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
        launched.append([launch.kernel.name for launch in plan.launches])
    (folder / "launched.json").write_text(json.dumps(launched), "utf-8")


def profile(todo: Sequence[Task], group: Group) -> list[Row]:
    """A row for each task, launch and metric of a group that this GPU has.

    Raises: ProfileError where a task ended the program, or the profiler saw other kernels than were launched.
    """
    metrics = list(group.metrics)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log, launched = folder / "log.csv", folder / "launched.json"
        said = json.dumps([(task.version, problem_columns(task.problem)) for task in todo])
        (folder / "tasks.json").write_text(said, "utf-8")
        while True:
            command = [
                toolkit("ncu"), "--target-processes", "application-only", "--profile-from-start", "off",
                "--clock-control", "none", "--cache-control", group.flushed,
                "--csv", "--page", "raw", "--print-units", "base",
                "--metrics", ",".join(metrics), "--log-file", str(log),
                sys.executable, "-m", "analysis", "counters", "--profiled", str(folder),
            ]  # fmt: skip
            # ncu's lock lies in TMPDIR: profilers of other cards need not wait. In C numbers have a decimal point.
            here = {**os.environ, "TMPDIR": name, "LC_ALL": "C"}
            done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", env=here)
            listing = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
            said = done.stdout + done.stderr + listing
            unknown = set(UNKNOWN_METRIC.findall(said)) & set(metrics)
            if not unknown:
                break
            metrics = [metric for metric in metrics if metric not in unknown]
        if FORBIDDEN in said:
            raise Refused(f"ncu may not read counters here, the driver keeps them for administrators ({FORBIDDEN})")
        if not launched.exists():
            raise ProfileError(f"ncu ended with {done.returncode}: {said[-500:].strip()}")
        made = zip(todo, json.loads(launched.read_text("utf-8")))
    kernels = [(task, *of) for task, names in made for of in enumerate(names)]
    print(f"[counters] {len(todo)} problems, {len(kernels)} kernels, {len(metrics)} metrics{group.mark}", flush=True)
    return tidy(listing, kernels, metrics, group.mark) if kernels else []


def tidy(text: str, launched: Sequence[tuple[Task, int, str]], metrics: Sequence[str], mark: str) -> list[Row]:
    """A row for each launch (task, which of its launches, kernel) and metric of ncu's raw CSV page; `mark` is added to
    the names of the metrics. Raises: ProfileError."""
    table = list(csv.DictReader(line for line in text.splitlines() if line.startswith('"')))
    units, kernels = table[0] if table else {}, table[1:]
    seen = [row["Kernel Name"] for row in kernels]
    if len(seen) != len(launched) or any(kernel not in name for (_, _, kernel), name in zip(launched, seen)):
        saw = f"ncu saw {len(seen)} kernels where {len(launched)} were launched, or in another order"
        raise ProfileError(saw if table else f"ncu printed no table: {text[-500:].strip()}")
    rows = []
    for (task, launch, kernel), row in zip(launched, kernels):
        columns = {"study": task.study, "version": task.version, **problem_columns(task.problem)}
        columns |= {"launch": launch, "kernel": kernel, **identity(task.version)}
        for metric in metrics:
            said = row.get(metric) or ""
            if "," in said and not THOUSANDS.fullmatch(said):
                raise ProfileError(f"{metric} is {said!r}, which is no number with decimal point")
            with contextlib.suppress(ValueError):
                value = float(said.replace(",", ""))
                if math.isfinite(value):  # else, and where it is n/a, this kernel has no such value
                    rows.append({**columns, "metric": metric + mark, "value": value, "unit": units.get(metric, "")})
    return rows


def profile_each(todo: Sequence[Task], rows: list[Row], failed: dict[Task, str]) -> None:
    """Profile tasks, and add their rows to `rows`, or why they failed to `failed`.

    Where one task keeps the others from being profiled, each half is profiled alone, down to that task.
    """
    try:
        rows += [row for group in GROUPS for row in profile(todo, group)]
    except ProfileError as error:
        middle = len(todo) // 2
        for half in (todo[:middle], todo[middle:]) if middle else ():
            profile_each(half, rows, failed)
        failed |= {} if middle else {todo[0]: str(error)}
    if not rows and len({task.version for task in failed}) >= HOPELESS:
        task, reason = failed.popitem()
        raise DataError(f"nothing can be profiled; {task}: {reason}")


def profile_all(writer: Writer, wanted: Sequence[Task], anew: bool) -> tuple[int, dict[Task, str]]:
    """Profile what no row of today's code answers, or all, a chunk at a time: how many rows are new, and what failed.
    """
    fresh: list[Row] = []
    failed: dict[Task, str] = {}
    began = time.monotonic()
    rows = () if anew else current(records(writer.card, "counters"))
    done = {(row["version"], problem_of(row)) for row in rows}
    todo = [task for task in wanted if task[1:] not in done]
    print(f"[counters] {len(todo)} of {len(wanted)} problems to profile", flush=True)
    if todo:
        toolkit("ncu")  # without one there is nothing to compile for
        with compilers(writer.gpu["target"]) as compile_each:
            compile_each(compile_pair, to_compile(task[1:] for task in todo))
    for start in range(0, len(todo), CHUNK):
        before = len(fresh)
        profile_each(todo[start : start + CHUNK], fresh, failed)
        run = writer.run("counters", anew and not start)
        run.append("counters", fresh[before:])
        seconds = round(time.monotonic() - began, 1)
        run.settle("counters", complete=start + CHUNK >= len(todo), seconds=seconds)
    return len(fresh), failed


def main(arguments: list[str] | None = None) -> int:
    parser = cards.parser("counters", __doc__, "profile anew also what was recorded of today's code")
    parser.add_argument("--profiled", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.profiled:
        launch_all(options.profiled)
        return 0
    with at_card(options.gpu) as writer:
        fresh, failed = profile_all(writer, tasks(writer.gpu["sms"]), options.new_run)
    for task, reason in failed.items():
        print(f"counters: {task}: {reason}", file=sys.stderr)
    print(f"[counters] {fresh} new rows in {writer.card}")
    return 1 if failed else 0
