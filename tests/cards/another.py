"""Another card of the reference's model: its record with other times, so that some findings do not hold."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from analysis.measure.studies import STUDIES
from analysis.records.files import DATA, REFERENCE, read_json, read_records, write_json, write_table

from .card import drawn

UUID = "GPU-0badcafe-0000-4000-8000-000000000000"
TIMES = ("p20_us", "median_us", "p80_us")
FILES = {"counters": ("counters",), "shapes": ("shapes",), "sanitizers": ("sanitizers",), "op": ("op", "op_problems")}
CEILING = 0.91  # of what the reference reaches


def write(folder: Path, studies: Collection[str], without: Collection[str]) -> Path:
    """Write its folder below `folder`, and return that."""
    record = DATA / "measured" / REFERENCE
    gpu = read_json(record / "gpu.json")
    slug = f"{REFERENCE}-{UUID.removeprefix('GPU-')[:8]}"
    place = folder / slug
    ceilings = {name: round(CEILING * value, 3) for name, value in gpu["ceilings"].items()}
    write_json(place / "gpu.json", {**gpu, "slug": slug, "uuid": UUID, "made_up": True, "ceilings": ceilings})
    left_out = {name for part in without for name in FILES.get(part, ())}
    tables = ["runs", "checks", "timings", *(name for names in FILES.values() for name in names)]
    rows = {name: read_records(record / f"{name}.csv", name) for name in tables if name not in left_out}
    keep = _latest(rows["runs"], studies)
    rows["runs"] = [row for row in rows["runs"] if row["study"] not in STUDIES or (row["study"], row["run"]) in keep]
    for name, content in rows.items():
        timed = name in ("checks", "timings")
        chosen = (row for row in content if not timed or (row["study"], row["run"]) in keep)
        write_table(place / f"{name}.csv", name, (_changed(row) for row in chosen))
    return place


def _latest(runs: list[dict[str, Any]], studies: Collection[str]) -> set[tuple[str, str]]:
    """Study and name of the latest complete run of each study that is wanted."""
    return set({row["study"]: row["run"] for row in runs if row["complete"] and row["study"] in studies}.items())


def _changed(row: dict[str, Any]) -> dict[str, Any]:
    """The same row of another node, its times longer or shorter by its version, not by chance."""
    if "node" in row:
        row = {**row, "node": "made-up", "commit": "made-up"}
    if row.get("median_us") is not None:
        factor = drawn(0.6, 1.7, UUID, row.get("version"), row["hdim"])
        row = {**row, **{name: factor * row[name] for name in TIMES}}
    return row
