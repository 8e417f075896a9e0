"""Decoding: V8, which rotates all keys in every call, beside PyTorch with a cache of keys that are rotated already."""

from __future__ import annotations

from dataclasses import replace

from kernels import Problem

from ..evidence import Estimate, Evidence
from ..evidence.origin import measured
from ..measure.studies import CACHED, ONE_GRAPH
from ..models.fusion import right
from ..models.targets import V8, floor, label
from ..record.text import NOTHING
from .speed import fastest
from .table import Missing, Table, ratio, time_cell
from .use import missing

STUDY = "decode"
WRITTEN_OUT, SDPA = CACHED


def taken(e: Evidence, name: str, step: Problem) -> Estimate | None:
    """What V8 or a peer takes in a step of decoding, some from a cache of rotated keys; None where it is not right."""
    problem = replace(step, cache="rotated") if name in CACHED else step
    if not right(e, STUDY, problem, name):
        return None
    return e.time(name, study=STUDY, problem=problem)[problem]


def table(e: Evidence) -> Table | Missing:
    """V8 and PyTorch at every step, V8's smallest speedup first."""
    rows = []
    for step in e.study(STUDY).problems("rope"):
        if step.cache == "none":
            raw = fastest(e.study(STUDY), ONE_GRAPH, step)
            us = {name: taken(e, name, step) for name in (V8, raw, WRITTEN_OUT, SDPA) if name}
            written, own = us[WRITTEN_OUT], us[V8]
            rows.append(
                {
                    "problem": label(step),
                    "v8": own,
                    "raw": us[raw] if raw else None,
                    "written": written,
                    "sdpa": us[SDPA],
                    "over": written / own if written and own else None,
                    "floor": floor(step, e.gpu).us,
                }
            )
    if not rows:
        return missing(e, "make measure STUDY=decode")
    return Table.from_frame(
        sorted(rows, key=lambda row: row["over"].value if row["over"] else 0.0),
        {
            "problem": ("problem", str),
            "v8": ("rope_v8, µs", _time),
            "raw": ("PyTorch, one graph, µs", _time),
            "written": ("cache, written out, µs", _time),
            "sdpa": ("cache, SDPA, µs", _time),
            "over": ("V8 over cache, written out", ratio),
            "floor": ("floor, µs", "{:.1f}"),
        },
        slice(1, None),
        f"device_warm on the {e.card}. rope_v8 and the first column of PyTorch rotate all keys; with a cache of "
        "rotated keys PyTorch rotates the new query and key. Speedup with the 95 % interval "
        f"{e.covers()}. Floor: an empty launch plus the longer of two times, moving the bytes from memory "
        "and computing the products on tensor cores.",
    ).of(measured(e, STUDY))


def _time(us: Estimate | None) -> str:
    return time_cell(us) if us else NOTHING
