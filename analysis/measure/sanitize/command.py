"""What compute-sanitizer sees in every version: `python -m analysis sanitize` writes measured/<gpu>/sanitizers.csv.

    python -m analysis sanitize --logs FOLDER     run the four tools on the GPU at hand, keep their logs
    python -m analysis sanitize --parse FOLDER    write the table again from kept logs; needs no GPU
    python -m analysis sanitize --list            what would run; needs no GPU

Each tool watches one process that runs all versions on small problems. A kernel is launched under a name that holds
the case and the launch, so a report says itself what it is about. Every buffer is a driver allocation of its exact
size, and holds nothing unless the plan fills it: that is what memcheck and initcheck watch. Racecheck runs twice: on
whole grids, where it names the instructions that race, and on one block of each launch, where it names each byte.
First, a planted kernel reads behind a buffer, reads what nobody wrote and races: a tool that misses it proves nothing
by its silence. That holds for all but synccheck: a barrier that diverges may hang the GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from kernels.runtime.gpu import GpuError

from ...records import cards
from ...records.current import is_current
from ...records.files import DataError
from ..machine import environment, identity
from ..refused import exit_code
from .cases import MODES, TOOLS, SanitizeError, Session, cases
from .logs import Log
from .rows import Evidence, Row, read_logs, undeclared, unseen, write
from .tools import TIMEOUT, find_sanitizer, sanitize

SHOWN = 40  # lines about undeclared findings


def summarise(session: Session, logs: Mapping[str, Log], rows: list[Row]) -> None:
    """Print what was found, what is not declared, and what in the logs was not understood."""
    for tool in TOOLS:
        mine = [row for row in rows if row["tool"] == tool]
        counts = {
            finding: sum(row["finding"] == finding for row in mine) for finding in sorted({r["finding"] for r in mine})
        }
        print(f"[sanitize] {tool}: {', '.join(f'{count} {finding}' for finding, count in counts.items())}")
    for name, log in logs.items():
        if MODES[name].planted and not log.planted(MODES[name].planted):
            print(f"[sanitize] {name} missed the planted {MODES[name].planted}: its silence says nothing")
        for index, reason in log.failed.items():
            print(f"[sanitize] {name}: case {index}: {reason}")
        for head, count in log.unparsed.most_common(10):
            print(f"[sanitize] {name}: not understood, {count} times: {head}")
        outside = {report.finding for report in log.reports.get(None, ())}
        if outside:
            print(f"[sanitize] {name}: before the first case: {', '.join(sorted(outside))}")
    for case in session.cases:
        if not is_current(case.version, case.source_hash):
            print(f"[sanitize] {case.version} has changed since these logs were made: its rows are left out")
    for line in unseen(rows, lambda name, problem: set()):
        print(f"[sanitize] declared, and seen by none of the tools: {line}")
    lines = undeclared(rows)
    for line in lines[:SHOWN]:
        print(f"[sanitize] NOT DECLARED: {line}")
    if len(lines) > SHOWN:
        print(f"[sanitize] and {len(lines) - SHOWN} more that are not declared")


def _list(versions: str) -> None:
    todo = cases(versions)
    for index, case in enumerate(todo):
        declared = ", ".join(f"{h.kind} of {h.place} in {h.kernel}" for h in case.plan().hazards) or "none"
        print(f"{index:4d} {case.version:40s} {case.problem!s:40s} {declared}")
    print(f"[sanitize] {len(todo)} cases of {len({case.version for case in todo})} versions")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis sanitize", description=__doc__.splitlines()[0])
    parser.add_argument("--versions", default="", help="only these, separated by commas; other rows are kept")
    parser.add_argument("--logs", type=Path, help="folder for the tools' logs (default: a temporary one)")
    parser.add_argument("--parse", type=Path, metavar="FOLDER", help="run nothing: read the logs kept in FOLDER")
    parser.add_argument("--list", action="store_true", help="run nothing: list the cases and their declared hazards")
    parser.add_argument("--jobs", type=int, default=len(MODES), help="tools at a time on the GPU (default: all)")
    parser.add_argument(
        "--timeout", type=float, default=TIMEOUT, help=f"seconds for each tool (default: {TIMEOUT:.0f})"
    )
    cards.add_options(parser)
    chosen = parser.parse_args(arguments)
    try:
        if chosen.list:
            _list(chosen.versions)
            return 0
        with contextlib.ExitStack() as stack:
            card: Path | None = None
            if chosen.parse:
                folder, session = chosen.parse, Session.load(chosen.parse)
            else:
                find_sanitizer()  # without one there is no card to hold
                card = stack.enter_context(cards.opened({**identity(), **environment()}, chosen.gpu, chosen.wait))
                folder = chosen.logs or Path(tempfile.mkdtemp(prefix="sanitizers-"))
                session = sanitize(folder, chosen.versions, chosen.jobs, chosen.timeout)
            logs = read_logs(folder)
            rows = Evidence(session, logs).rows()
            summarise(session, logs, rows)
            if all(row["finding"] == "not_checked" for row in rows):
                raise SanitizeError(
                    f"no tool has checked anything, and nothing is written; the logs in {folder} say why"
                )
            card = card or stack.enter_context(cards.opened(session.gpu, chosen.gpu, chosen.wait))
            path = write(session, rows, card)
    except (SanitizeError, DataError, GpuError) as error:
        print(f"sanitize: {error}", file=sys.stderr)
        return exit_code(error)
    print(f"[sanitize] {len(rows)} rows in {path}; logs in {folder}")
    return 1 if undeclared(rows) else 0
