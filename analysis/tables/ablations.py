"""Every ablation and its speed over the version in which it changes one thing."""

from html import escape
from typing import Any

from kernels import VERSIONS

from ..evidence import Evidence
from ..record.text import number
from .table import Missing, Table, code, lines, link, small

DIMS = (64, 128, 512, 2048, 4096, 8192)


def ablations(e: Evidence) -> Table | Missing:
    """Every ablation that was timed beside what it changes, with its speed over that by head dim."""
    rows = []
    for version in (version for version in VERSIONS.values() if version.ablation):
        parent = version.parent or ""
        length: dict[str, Any] = {"seq_q": 512} if version.family == "fp16" else {}
        speeds = e.speedup(version.id, over=parent, study="ablation", hdim=DIMS, **length)
        cells = [f"{hdim}: {number(value, '×')}" for hdim, value in speeds.values_known.items()]
        changed = lines(link(version.id), small(f"over {code(parent)}"))
        if cells:
            rows.append((changed, escape(version.change), lines(*cells)))
    header = ("version", "change", "speed")
    caption = (
        "Speed over the version that is changed, by head dim, on the device in one run with it; above 1, the change "
        "makes it faster."
    )
    return Table(header, rows, header[2:], caption) if rows else Missing.study("ablation")
