"""Every ablation and its speed over the version in which it changes one thing."""

from __future__ import annotations

from html import escape
from typing import Any

from kernels import VERSIONS

from ...records.files import gpu_folder
from ...records.interval import Ratio
from ...records.measured import Measured
from ...records.text import number
from ...tables.table import Table, code, link, small
from ...verdicts import claims
from ...verdicts.facts import Facts
from ...verdicts.rule import Undecided, interval
from .questions import NOT_YET

DIMS = (64, 128, 512, 2048, 4096, 8192)


def described() -> dict[str, tuple[str, str]]:
    """Every ablation: what it changes, and in which version; one that is asked for and not written has no parent."""
    known = {name: (v.change, v.parent or "") for name, v in VERSIONS.items() if v.ablation}
    return known | {name: (text, "") for name, text in claims.wanted().items() if name not in VERSIONS}


def ablations(evidence: Measured) -> Table:
    """Every ablation with its speed over what it changes, by head dim, or that it is not measured."""
    facts = Facts(gpu_folder(evidence.slug))
    rows = []
    for name, (change, parent) in described().items():
        speeds = _over_parent(facts, name, parent) if parent else {}
        cells = [f"{hdim}: {number(value.value, '×')}" for hdim, value in speeds.items()]
        over = f"<br>{small(f'over {code(parent)}')}" if parent else ""
        rows.append((f"{link(name)}{over}", escape(change), "<br>".join(cells) or small(NOT_YET)))
    header = ("version", "change", "speed")
    caption = (
        "Speed over the version that is changed, by head dim, on the device in one run with it; above 1, the change "
        "makes it faster."
    )
    return Table(header, rows, numbers=header[2:], caption=caption)


def _over_parent(facts: Facts, name: str, parent: str) -> dict[int, Ratio]:
    values = {}
    for hdim in DIMS:
        chosen: dict[str, Any] = {"seq_q": 512} if VERSIONS[name].family == "fp16" else {}
        try:
            values[hdim] = interval(facts.speed(name, parent, hdim, study="ablation", **chosen), facts.pools)
        except Undecided:
            continue
    return values
