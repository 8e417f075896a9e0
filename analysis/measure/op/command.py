"""What the op of kernels/ops.py does on the GPU at hand: right on random calls, in time, at the same time.

    python -m analysis op                                all of it: op_problems.csv and op.csv of data/measured/<gpu>/
    python -m analysis op --study problems --problems 200
    python -m analysis op --list                         how many kernels the calls would meet; needs no GPU

Random calls go on where they stopped; what is complete stays as it is, unless its code has changed or `--new-run`.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import sys
from collections.abc import Callable

from kernels.runtime.gpu import GpuError

from ...records import cards
from ...records.files import DataError
from ..on_gpu import identify
from ..runs import Run
from ..sanitize.cases import SanitizeError
from ..studies import Study
from ..workers import MeasureError, Worker
from .calls import drawn
from .check import MOST_KERNELS, PROBLEMS, SEED, check_problems, missing
from .classes import count_classes
from .overhead import first_calls, time_op
from .planned import kernel_of
from .sanitized import sanitize_op
from .stress import stress

STUDIES: dict[str, tuple[str, Callable[[Run, str], None]]] = {
    "time": ("the op beside its bare launch, on the host and on the device", time_op),
    "compile": ("the first call, with and without what an earlier one left on disk", first_calls),
    "classes": ("kernels that the loops of models meet", count_classes),
    "stress": ("calls at the same time", stress),
    "sanitize": ("the op under compute-sanitizer", sanitize_op),
}
ALL = ("problems", *STUDIES)
TARGET = "sm_90"  # of --list


def _run_of(name: str, about: str, gpu: dict, new_run: bool) -> Run:
    return Run(Study(f"op_{name}", about, (), ()), gpu, new_run)


def measure_op(names: list[str], gpu: dict, count: int, seed: int, new_run: bool) -> bool:
    """Bring the chosen studies to their ends; whether every row is as it should be. Raises: MeasureError, DataError."""
    fine = True
    for name in names:
        if name == "problems":
            about, table = "random calls", "op_problems"
            work: Callable[[Run, str], None] = functools.partial(check_problems, count=count, seed=seed)
            run = _run_of(name, about, gpu, new_run)
            if run.row["complete"] and missing(run, count, seed):
                run = _run_of(name, about, gpu, True)
        else:
            (about, work), table = STUDIES[name], "op"
            run = _run_of(name, about, gpu, new_run)
            if bool(run.row["complete"]) != bool(run.rows(table)):  # cut short, or of other code
                run = _run_of(name, about, gpu, True)
        print(f"[op] {name}, {about}: {'measured' if run.row['complete'] else 'run ' + run.id}", flush=True)
        if not run.row["complete"]:
            run.save(complete=False)
            work(run, gpu["target"])
            run.save(complete=True)
        fine &= _summarise(run, table)
    return fine


def _summarise(run: Run, table: str) -> bool:
    """Print how many rows there are of each status, and those that are bad; whether there are none."""
    rows = run.rows(table)
    counts = collections.Counter(row["status"] for row in rows)
    print(f"[op]   {', '.join(f'{count} {status}' for status, count in counts.items())}; {run.folder / table}.csv")
    bad = [row for row in rows if row["status"] not in ("ok", "unavailable")]
    for row in bad[:40]:
        what = f"call {row['call']}, {row['inputs']}" if table == "op_problems" else row["what"]
        print(f"[op]   {row['status'].upper()}: {what}: {row['reason']}")
    return not bad


def _list(count: int, seed: int) -> None:
    calls = drawn(count, seed, lambda call: kernel_of(call, TARGET), MOST_KERNELS)
    planned = [kernel_of(call, TARGET) for call in calls]
    print(f"[op] {count} calls meet {len(set(planned) - {None})} kernels of {TARGET}; {planned.count(None)} need none")
    for what, values in (("inputs", [c.inputs for c in calls]), ("mode", [c.mode for c in calls])):
        print(f"[op] {what}: {', '.join(f'{n} {value}' for value, n in collections.Counter(values).items())}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis op", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--study", default="all", help=f"some of, separated by commas: {', '.join(ALL)}")
    parser.add_argument("--problems", type=int, default=PROBLEMS, help=f"random calls (default: {PROBLEMS})")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of their draw (default: {SEED})")
    parser.add_argument("--new-run", action="store_true", help="measure again what is complete")
    cards.add_options(parser)
    parser.add_argument("--list", action="store_true", help="plan the random calls alone; needs no GPU")
    chosen = parser.parse_args(arguments)
    names = list(ALL) if chosen.study == "all" else chosen.study.split(",")
    try:
        unknown = [name for name in names if name not in ALL]
        if unknown:
            raise ValueError(f"no study of the op is called {unknown[0]!r}; known: {', '.join(ALL)}")
        if chosen.list:
            _list(chosen.problems, chosen.seed)
            return 0
        with contextlib.closing(Worker(identify)) as worker:
            gpu = dict(worker.do())["identity"]
        with cards.opened(gpu, chosen.gpu, chosen.wait) as folder:
            gpu["slug"] = folder.name
            fine = measure_op(names, gpu, chosen.problems, chosen.seed, chosen.new_run)
    except (MeasureError, DataError, GpuError, SanitizeError, ValueError, LookupError) as error:
        print(f"op: {error}", file=sys.stderr)
        return 1
    return 0 if fine else 1
