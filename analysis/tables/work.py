"""What a ladder's chapter sets below its steps: what every version does, and tests of claims."""

from __future__ import annotations

from collections.abc import Mapping

from kernels import VERSIONS, Problem

from ..evidence import Evidence
from ..evidence.origin import COUNTED, measured
from ..models.profiles import SECTOR_BYTES
from ..record import published
from ..record.text import number
from .speed import home
from .table import NOTHING, Table, link, rotary, time_cell

MEGABYTES = 1e6 / SECTOR_BYTES
# What a version does in one call: words, the counters that make it up, by what it is divided.
WORK: tuple[tuple[str, tuple[str, ...], float], ...] = (
    ("rotations, M", ("event.rotation",), 1e6),
    ("calls of sine, cosine or both, M", ("event.sin", "event.cos", "event.sincos"), 1e6),
    ("powers, M", ("event.pow",), 1e6),
    ("multiply-adds, M", ("inst.fma",), 1e6),
    ("instructions of warps, M", ("warp_inst",), 1e6),
    ("MB asked for", ("global.read.sectors",), MEGABYTES),
    ("MB written", ("global.write.sectors",), MEGABYTES),
    ("wavefronts of shared memory, M", ("shared.wavefronts",), 1e6),
    ("barriers, thousands", ("barriers",), 1e3),
)


def work(e: Evidence, family: str, hdim: int) -> Table:
    """What each version of a family does in one call at a head dim, counted exactly; and the time that it takes."""
    study = e.study(home(e, family))
    found: list[tuple[str, Problem, Mapping[str, float]]] = []
    for name in study.versions(family) or [v.id for v in VERSIONS.values() if v.family == family]:
        groups = {problem: rows for problem, rows in e.record.counts.get(name, {}).items() if problem.hdim == hdim}
        if groups:
            problem = study.shapes(name, refused=True).get(hdim) or published.main_problems(groups)[0]
            if problem in groups:
                found.append((name, problem, groups[problem].groupby("counter")["value"].sum().to_dict()))
    done = {
        what: [sum(totals.get(each, 0.0) for each in parts) / divisor for _, _, totals in found]
        for what, parts, divisor in WORK
    }
    shown = [what for what, amounts in done.items() if any(amounts)]
    return Table.from_frame(
        [
            {
                "version": link(name) + rotary(problem),
                **{what: done[what][place] for what in shown},
                "us": time_cell(e.time(name, study.name, "device_warm", problem=problem)[problem]),
            }
            for place, (name, problem, _) in enumerate(found)
        ],
        {
            "version": ("version", str),
            **{what: (what, _amount) for what in shown},
            "us": ("device, µs", str),
        },
        slice(1, None),
        f"Counts: one call at head dim {hdim}, in an emulator that runs the compiled kernel. MB asked for and written: "
        "sectors of 32 bytes, each as often as it is read or written. Times: device_warm on "
        f"the {e.card}.",
    ).of(measured(e, study.name) + COUNTED)


def _amount(value: float) -> str:
    return number(value) if value else NOTHING
