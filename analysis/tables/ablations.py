"""Every ablation and its speed over the version in which it changes one thing."""

from html import escape
from typing import Any

from kernels import VERSIONS

from ..evidence import Estimates, Evidence
from ..record.text import number
from .table import Table, code, link, small

DIMS = (64, 128, 512, 2048, 4096, 8192)
NOT_YET = "not measured"


def ablations(e: Evidence) -> Table:
    """Every ablation with its speed over what it changes, by head dim, or that it is not measured."""
    rows = []
    for name, (change, parent) in {v.id: (v.change, v.parent or "") for v in VERSIONS.values() if v.ablation}.items():
        speeds = over_parent(e, name, parent)
        cells = [f"{hdim}: {number(value, '×')}" for hdim, value in speeds.values_known.items()]
        over = f"<br>{small(f'over {code(parent)}')}" if parent else ""
        rows.append((f"{link(name)}{over}", escape(change), "<br>".join(cells) or small(NOT_YET)))
    header = ("version", "change", "speed")
    caption = (
        "Speed over the version that is changed, by head dim, on the device in one run with it; above 1, the change "
        "makes it faster."
    )
    return Table(header, rows, numbers=header[2:], caption=caption)


def over_parent(e: Evidence, name: str, parent: str) -> Estimates:
    length: dict[str, Any] = {"seq_q": 512} if VERSIONS[name].family == "fp16" else {}
    return e.speedup(name, over=parent, study="ablation", hdim=DIMS, **length)
