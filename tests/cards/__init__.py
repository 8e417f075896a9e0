"""A made-up card: the reference's record under another name, with other times, with gaps, errors and refusals.

    write("8.9", folder)

What is made up is drawn from a hash, so that it is the same every time. `gpu.json` says `"made_up": true`.
"""

import hashlib
import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

from analysis.record import records
from analysis.record.files import DATA, REFERENCE, problem_of, read_json, write_json
from analysis.studies import STUDIES
from tests.rows import add_rows

TIMES = ("p20_us", "median_us", "p80_us")
NOT_SAID = {*TIMES, "timer", "n", "sm_mhz", "discarded", "max_abs_err", "nan_share", "core"}  # of what did not run
ERROR = 0.04  # share of the pairs of a version and a problem that failed
MISSING = ("rope_v5", "sinusoidal_v3", "attention_async_double_buffer")  # not measured
FAILED = "CUDA out of memory. The card is made up."
MEASURED = tuple(name for name in STUDIES if name not in ("filled", "waves"))
REFUSED = {  # versions that the card takes on no problem
    name: "the card is made up without it"
    for name in ("rope_v2", "sinusoidal_v4", "attention_register_tiling", "fp16_phase6_iter1", "rope_v8_mma")
}


def share(*key: object) -> float:
    """A number in [0, 1) that belongs to a key."""
    return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:6], "big") / 2**48


def write(capability: str, folder: Path, studies: Collection[str] = MEASURED) -> Path:
    """Write the measurements of a made-up card into a folder of its slug below `folder`, and return that.

    By default without a few studies; it has no counters, tilings, sanitizer's rows or calls of the op.

    Raises: ValueError for a folder in which measurements are kept.
    """
    if folder.resolve().is_relative_to(DATA):
        raise ValueError(f"{folder} lies below {DATA}, where nothing made up may lie")
    record, name = DATA / "measured" / REFERENCE, f"Made-up {capability}"
    place = folder / f"made-up-{capability.replace('.', '-')}"
    gpu = read_json(record / "gpu.json")
    about = {"name": name, "slug": place.name, "uuid": f"GPU-{name}", "compute_capability": capability, "made_up": True}
    ceilings = {key: round(0.7 * value, 3) for key, value in gpu["ceilings"].items()}
    write_json(place / "gpu.json", {**gpu, **about, "ceilings": ceilings})
    runs = [row for row in records(record, "runs") if row["complete"] and row["study"] in studies]
    latest = {row["study"]: row["run"] for row in runs}
    kept = [{**row, "name": name, "node": "made-up", "commit": "made-up", "uuid": None} for row in runs]
    add_rows(place, "runs", [row for row in kept if latest[row["study"]] == row["run"]])
    for table in ("checks", "timings"):
        rows = (row for row in records(record, table) if latest.get(row["study"]) == row["run"])
        add_rows(place, table, filter(None, (_made_up(name, row) for row in rows)))
    return place


def _made_up(card: str, row: dict[str, Any]) -> dict[str, Any] | None:
    """A row of the card; None where it has none."""
    pair = (card, row["version"], problem_of(row))
    if row["version"] in MISSING:
        return None
    why = REFUSED.get(row["version"]) or (FAILED if share("error", *pair) < ERROR else "")
    why = why if row["status"] in ("ok", "wrong") else ""
    if why:
        if row.get("process", 0) > 1 or row.get("timer") not in (None, "device_warm"):
            return None  # in place of all its times it has one row, as has what was not timed
        status = "unsupported" if row["version"] in REFUSED else "error"
        row = {**row, "process": 0} if "process" in row else row
        return {**row, "status": status, "reason": why, **dict.fromkeys(row.keys() & NOT_SAID)}
    if row.get("median_us") is not None:
        factor = 0.6 * math.exp(share(*pair) * math.log(3))
        row = {**row, **{each: factor * row[each] for each in TIMES}}
    return row
