"""What shapes.csv says of V8: what the parts of its kernel cost."""

from typing import Any

import pandas as pd

from kernels import Problem

from ..evidence import Evidence
from ..measure.studies import MAIN
from ..record.files import with_problems
from .rivals import label

CUTS = {  # parts of V8's kernel that a past audit left out; no command measures them again
    "no_scores": "no products of Q and K",
    "no_output": "no products with V, nor the output rescaled",
    "no_embedding": "nothing rotated",
    "copies_alone": "only copies and exchanges",
}


def shapes(e: Evidence) -> pd.DataFrame:
    """What the search of V8's shapes measured; no rows where it was not made on this card."""
    found = with_problems(e.record.frame("shapes"))
    number, flag = found["median_us"].astype(float), found["chosen"].astype(bool)
    return found.assign(cut=found["cut"].fillna(""), median_us=number, chosen=flag)


def best(shapes: pd.DataFrame, problem: Problem, **columns: Any) -> float | None:
    """The least microseconds at a problem of rows with these columns, with no change to the kernel but `cut`."""
    mine = shapes[(shapes["problem"] == problem) & shapes["median_us"].notna()]
    for name, value in {"cut": "", **columns}.items():
        mine = mine[mine[name] == value]
    return float(mine["median_us"].min()) if len(mine) else None


def base(shapes: pd.DataFrame, problem: Problem) -> float | None:
    """The time of the shape that changes were made to, by the same code: what the rule of the warpgroup core chose."""
    changed = shapes[(shapes["problem"] == problem) & (shapes["cut"] != "")]
    if changed.empty:
        return None
    same = ("core", "cluster", "queries", "width", "warps", "blocks_per_sm", "once", "source_hash")
    return best(shapes, problem, **{name: changed.iloc[0][name] for name in same})


def cuts(shapes: pd.DataFrame) -> pd.DataFrame:
    """The kernel as it is and with each part left out, at the documents' main shape; no rows where not timed."""
    whole = base(shapes, MAIN)
    parts = {"the kernel": whole, **{about: best(shapes, MAIN, cut=cut) for cut, about in CUTS.items()}}
    rows = [(label(MAIN), part, us, us / whole) for part, us in parts.items() if us and whole]
    return pd.DataFrame(rows, columns=["problem", "part", "median_us", "share"])
