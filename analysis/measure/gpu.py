"""Everything on the GPU at hand, one part after the other: `python -m analysis gpu`, which `make gpu` calls.

    python -m analysis gpu --check          say what stands before it, and end
    python -m analysis gpu                  check, then measure, tune, sanitize, op, counters, claims and the book

Each part is a command of its own, in a process of its own. One that fails, or that this machine refuses, ends no other:
the summary at the end says which and why. Called again, each part goes on where it stopped.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from kernels.runtime.gpu import GpuError

from ..record import cards, files
from ..record.files import ROOT, DataError
from . import preflight
from .on_gpu import identify
from .refused import REFUSED
from .studies import STUDIES, studies
from .workers import MeasureError, answer

PARTS = ("measure", "tune", "sanitize", "op", "counters", "claims", "build")
TAKE_WAIT = PARTS[:5]
OUTCOMES = {0: "done", REFUSED: "refused"}


@dataclass(frozen=True)
class Outcome:
    part: str
    state: str  # done, refused (by the machine) or failed
    seconds: float
    why: str

    def __str__(self) -> str:
        return f"[gpu] {self.part:9s} {self.state:8s} {self.seconds:6.0f} s  {self.why}".rstrip()


def _arguments(part: str, slug: str, chosen: argparse.Namespace) -> list[str]:
    study = ["--checked", "--study", chosen.study] if part == "measure" else []
    return [part, "--gpu", slug, *study, *(["--wait"] if chosen.wait and part in TAKE_WAIT else [])]


def _last_line(text: bytes) -> str:
    lines = [line.strip() for line in text.decode(errors="replace").replace("\r", "\n").splitlines()]
    return next((line for line in reversed(lines) if line), "")


def run_part(part: str, arguments: Sequence[str]) -> Outcome:
    """Run a command of this project, its output shown as it comes; why it did not succeed is what it said last."""
    began = time.monotonic()
    print(f"\n[gpu] {part}", flush=True)
    command = [sys.executable, "-m", "analysis", *arguments]
    here = {**os.environ, "PYTHONUNBUFFERED": "1", "FUSED_PE_DATA": str(files.MEASURED)}
    tail = b""
    with subprocess.Popen(command, cwd=ROOT, env=here, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout
        while some := os.read(process.stdout.fileno(), 1 << 16):
            sys.stdout.buffer.write(some)
            sys.stdout.buffer.flush()
            tail = (tail + some)[-4096:]
    state = OUTCOMES.get(process.returncode, "failed")
    return Outcome(part, state, time.monotonic() - began, "" if state == "done" else _last_line(tail))


def run_all(slug: str, chosen: argparse.Namespace) -> list[Outcome]:
    """Every part that is wanted, whatever becomes of those before it."""
    left_out = chosen.without.split(",")
    return [run_part(part, _arguments(part, slug, chosen)) for part in PARTS if part not in left_out]


def _folder(named: str) -> str:
    """The name of the folder of the card at hand. Raises: MeasureError, DataError."""
    return cards.folder_of(answer(identify), named).name


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis gpu", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="say what stands before measuring here, and end")
    parser.add_argument("--without", default="", help=f"parts to leave out, separated by commas: {', '.join(PARTS)}")
    parser.add_argument("--study", default="all", help=f"what to measure, separated by commas: {', '.join(STUDIES)}")
    cards.add_options(parser)
    chosen = parser.parse_args(arguments)
    if unknown := set(filter(None, chosen.without.split(","))) - set(PARTS):
        parser.error(f"no part is called {min(unknown)!r}; there are: {', '.join(PARTS)}")
    try:
        if not preflight.passes(studies(chosen.study)):
            return 1
        if chosen.check:
            return 0
        slug = _folder(chosen.gpu)
    except (MeasureError, DataError, GpuError, ValueError) as error:
        print(f"gpu: {error}", file=sys.stderr)
        return 1
    outcomes = run_all(slug, chosen)
    print("", *outcomes, sep="\n")
    return int(any(each.part == "measure" and each.state != "done" for each in outcomes))
