"""What compute-sanitizer sees in every version: `python -m analysis sanitize` writes measured/<gpu>/sanitizers.csv.

    python -m analysis sanitize --logs FOLDER      run the four tools on the GPU at hand, keep what they print
    python -m analysis sanitize --versions rope_v8

One process for each tool and version, and one row: how many hazards the tool counts, over the version's small problems.
What a version declares is expected. A tool that misses the planted kernel, or does not come to its end, has checked
nothing; synccheck has no planted hazard, since a barrier that diverges may hang the GPU. Rows that name a kernel and a
place are of an older way of measuring, which read them from the tools' reports.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from kernels import VERSIONS, Unsupported
from kernels.runtime.compile import CompileError, assembled, compile_ptx, require_target
from kernels.runtime.gpu import GpuError, device_target

from ..records import cards
from ..records.current import today
from ..records.files import ROOT, DataError, read_records, write_table
from . import sanitized
from .machine import environment, identity, now
from .progress import tqdm
from .refused import REFUSED, Refused, exit_code
from .runs import machine_columns, run_name
from .workers import compile_each

Row = dict[str, Any]

FINDS = {  # by tool: what it looks for, and whether the planted kernel has it
    "memcheck": ("out_of_bounds", True),
    "racecheck": ("race", True),
    "initcheck": ("uninitialised", True),
    "synccheck": ("divergent_barrier", False),
}
OPTIONS = {
    "memcheck": ("--padding 65536", "--report-api-errors no"),
    "racecheck": ("--racecheck-report analysis",),
    "initcheck": ("--initcheck-address-space all",),
    "synccheck": (),
}
COMMON_OPTIONS = (
    "--destroy-on-device-error kernel",
    "--show-backtrace no",
    "--target-processes application-only",
    "--launch-timeout 300",
)
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) ")
TIMEOUT = 300.0  # seconds, of one process
FIRST_PORT = 49_152
MOST_JOBS = 8


class SanitizeError(RuntimeError):
    """The sanitizers could not run."""


class NoSanitizer(Refused, SanitizeError):
    """There is no compute-sanitizer on this machine."""


def find_sanitizer() -> str:
    """The path of compute-sanitizer. Raises: NoSanitizer naming where it was sought."""
    folders = [os.path.join(root, "bin") for root in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if root]
    path = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=os.pathsep.join(folders))
    if not path:
        raise NoSanitizer(
            f"compute-sanitizer is neither on the PATH nor in {' or '.join(folders)}; "
            "it comes with the CUDA toolkit: set CUDA_HOME to where that is"
        )
    return path


def options(tool: str, help_text: str, port: int) -> list[str]:
    """The command-line options of a tool that this compute-sanitizer knows."""
    wanted = [f"--tool {tool}", *COMMON_OPTIONS, f"--port {port}", *OPTIONS[tool]]
    known = [option for option in wanted if re.search(rf"{option.split()[0]}\b", help_text)]
    return [word for option in known for word in option.split()]


class Told(NamedTuple):
    """How a watched process ended: its exit code, and the hazards that the tool counts; None without a summary."""

    code: int
    hazards: int | None


def watch(binary: str, tool: str, name: str, help_text: str, port: int, folder: Path) -> Told:
    """Run one version, or the planted kernel, under one tool."""
    log = folder / f"{tool}_{name}.log"
    command = [binary, *options(tool, help_text, port), sys.executable, "-m", sanitized.__name__, tool, name]
    with open(log, "wb") as out:
        try:
            code = subprocess.run(
                command, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT, timeout=TIMEOUT, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            return Told(-1, None)
    counts = SUMMARY.findall(log.read_text(encoding="utf-8", errors="replace"))
    return Told(code, int(counts[-1]) if counts else None)


def declared(name: str) -> set[str]:
    """The kinds of hazards that a version declares on its small problems."""
    version = VERSIONS[name]
    return {hazard.kind for problem in sanitized.problems(version) for hazard in version(problem).hazards}


def row_of(run: str, tool: str, name: str, told: Told, hears: bool) -> Row:
    """The row of one tool and version. `hears`: whether the tool found the planted hazard."""
    finding, _ = FINDS[tool]
    expected = finding in declared(name)
    if told.hazards:
        pass
    elif told.code == REFUSED and told.hazards is not None:
        finding, expected = "unsupported", True
    elif told.code or told.hazards is None or not hears:
        finding, expected = "not_checked", False
    else:
        finding, expected = "none", True
    return {
        "run": run, "tool": tool, "version": name, "finding": finding, "hazards": told.hazards, "expected": expected,
        "source_hash": today(name),
    }  # fmt: skip


def _assemble(name: str, target: str) -> None:
    for problem in sanitized.problems(VERSIONS[name]):
        with contextlib.suppress(Unsupported, CompileError):  # the watched process says so
            for launch in VERSIONS[name](problem, target).launches:
                require_target(launch, target)
                assembled(compile_ptx(launch.kernel, target), target)


def sanitize(run: str, names: Sequence[str], folder: Path) -> list[Row]:
    """Run every tool on the versions; what they print goes to `folder`. Raises: SanitizeError."""
    binary = find_sanitizer()
    help_text = subprocess.run(
        [binary, "--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    ).stdout
    if "--tool" not in help_text:
        raise SanitizeError(f"{binary} --help does not answer: {help_text.strip()[-300:]}")
    todo = [(tool, name) for name in (sanitized.PLANTED, *names) for tool in FINDS]
    with ThreadPoolExecutor(min(MOST_JOBS, os.cpu_count() or 1)) as pool:
        told = tqdm(
            pool.map(
                lambda place: watch(binary, *todo[place], help_text, FIRST_PORT + 8 * (place % 1000), folder),
                range(len(todo)),
            ),
            total=len(todo),
        )
        found = dict(zip(todo, told, strict=True))
    hears = {tool: not planted or bool(found[tool, sanitized.PLANTED].hazards) for tool, (_, planted) in FINDS.items()}
    rows = [row_of(run, tool, name, found[tool, name], hears[tool]) for name in names for tool in FINDS]
    if all(row["finding"] == "not_checked" for row in rows):
        raise SanitizeError(f"no tool has checked anything, and nothing is written; what they say is in {folder}")
    return rows


def write(rows: list[Row], entry: Row, folder: Path) -> Path:
    """Put rows into sanitizers.csv, in place of those of the same versions, and the run into runs.csv."""
    path = folder / "sanitizers.csv"
    ran = {row["version"] for row in rows}
    kept = [row for row in read_records(path, "sanitizers") if row["version"] in VERSIONS and row["version"] not in ran]
    order = list(VERSIONS)
    folder.mkdir(parents=True, exist_ok=True)
    write_table(path, "sanitizers", sorted([*kept, *rows], key=lambda row: order.index(row["version"])))
    runs = read_records(folder / "runs.csv", "runs")
    write_table(folder / "runs.csv", "runs", [*runs, entry])
    return path


def summarise(rows: Sequence[Row]) -> list[str]:
    """Lines about what the tools found, and at the end what no version declares."""
    counts = collections.Counter((row["tool"], row["finding"]) for row in rows)
    lines = [f"{tool}: {', '.join(f'{n} {what}' for (of, what), n in counts.items() if of == tool)}" for tool in FINDS]
    bad = [f"NOT DECLARED: {row['tool']}: {row['finding']} in {row['version']}" for row in rows if not row["expected"]]
    return lines + bad


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis sanitize", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--versions", default="", help="only these, separated by commas; other rows are kept")
    parser.add_argument("--logs", type=Path, help="folder for what the tools print (default: a temporary one)")
    cards.add_options(parser)
    chosen = parser.parse_args(arguments)
    own = [version.id for version in VERSIONS.values() if not version.is_peer]
    names = chosen.versions.split(",") if chosen.versions else own
    try:
        if unknown := set(names) - set(own):
            raise SanitizeError(f"no version of the log is called {min(unknown)!r}")
        find_sanitizer()  # without one there is no card to hold
        gpu = {**identity(), **environment()}
        with cards.opened(gpu, chosen.gpu, chosen.wait) as card:
            started, began = now(), time.monotonic()
            run = run_name(started, read_records(card / "runs.csv", "runs"))
            folder = (chosen.logs or Path(tempfile.mkdtemp(prefix="sanitizers-"))).resolve()
            folder.mkdir(parents=True, exist_ok=True)
            compile_each(_assemble, names, device_target())
            rows = sanitize(run, names, folder)
            entry = {
                "run": run, "study": "sanitizers", "started_at": started, "finished_at": now(),
                "complete": names == own and all(row["finding"] != "not_checked" for row in rows),
                "seconds": round(time.monotonic() - began, 1), "throttle": "unknown", **machine_columns(gpu),
            }  # fmt: skip
            path = write(rows, entry, card)
    except (SanitizeError, DataError, GpuError) as error:
        print(f"sanitize: {error}", file=sys.stderr)
        return exit_code(error)
    print("\n".join(f"[sanitize] {line}" for line in (*summarise(rows), f"{path}; what the tools print: {folder}")))
    return int(not all(row["expected"] for row in rows))
