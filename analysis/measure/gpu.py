"""Everything on the GPU at hand, one part after the other: `python -m analysis gpu`, which `make gpu` calls.

Each part is a command of its own, in a process of its own. One that fails, or that this machine refuses, ends no other:
the summary at the end says which and why. Called again, each part goes on where it stopped.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from ..errors import REFUSED
from ..record import cards, files
from ..studies import OTHER_RUNS, STUDIES, studies
from . import preflight
from .on_gpu import identify
from .workers import answer

PARTS = ("measure", "sanitize", "op", "counters", "claims", "build")
OUTCOMES = {0: "done", REFUSED: "refused"}


def run_part(part: str, arguments: Sequence[str]) -> tuple[str, str]:
    """Run a command of this project, its output shown as it comes; its outcome, and a line that says so.

    Why a part did not succeed is what it said last.
    """
    began, tail = time.monotonic(), b""
    print(f"\n[gpu] {part}", flush=True)
    command = [sys.executable, "-m", "analysis", part, *arguments]
    here = {**os.environ, "PYTHONUNBUFFERED": "1", "FUSED_PE_DATA": str(files.MEASURED)}
    with subprocess.Popen(
        command, cwd=files.ROOT, env=here, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout
        try:
            while some := os.read(process.stdout.fileno(), 1 << 16):
                sys.stdout.buffer.write(some)
                sys.stdout.buffer.flush()
                tail = (tail + some)[-4096:]
        except KeyboardInterrupt:  # the terminal interrupts the part as well, whose processes then leave the card
            with contextlib.suppress(subprocess.TimeoutExpired):
                sys.stdout.buffer.write(process.communicate(timeout=3 * preflight.LEAVES_IN)[0])
            process.send_signal(signal.SIGINT)  # where this process alone was interrupted
            raise
    state = OUTCOMES.get(process.returncode, "failed")
    said = [line.strip() for line in tail.decode(errors="replace").replace("\r", "\n").splitlines() if line.strip()]
    why = said[-1] if said and state != "done" else ""
    return state, f"[gpu] {part:9s} {state:8s} {time.monotonic() - began:6.0f} s  {why}".rstrip()


def run_all(slug: str, chosen: argparse.Namespace) -> int:
    """Run every part that is wanted, whatever becomes of those before it; the exit code is that of measuring."""
    code, lines, began = 0, [], time.monotonic()
    for part in PARTS:
        own = ["--checked", "--study", chosen.study] if part == "measure" else []
        state, line = run_part(part, ["--gpu", slug, *own])
        lines.append(line)
        code |= part == "measure" and state != "done"
    print("", *lines, f"[gpu] all together {(time.monotonic() - began) / 60:.1f} min", sep="\n")
    return int(code)


def main(arguments: list[str] | None = None) -> int:
    parser = cards.parser("gpu", __doc__)
    parser.add_argument("--check", action="store_true", help="say what stands before measuring here, and end")
    parser.add_argument("--study", default="all", help=f"what to measure, separated by commas: {', '.join(STUDIES)}")
    chosen = parser.parse_args(arguments)
    if not preflight.passes([*(study.name for study in studies(chosen.study)), *OTHER_RUNS]):
        return 1
    return 0 if chosen.check else run_all(cards.folder_of(answer(identify), chosen.gpu).name, chosen)
