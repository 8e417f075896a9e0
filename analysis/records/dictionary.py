"""The text of data/README.md, which `python -m analysis dictionary` writes from the schemas."""

from __future__ import annotations

import argparse

from .files import DATA
from .schema import SCHEMAS

PLACES = {
    "runs": "measured/<gpu>/runs.csv",
    "checks": "measured/<gpu>/checks.csv",
    "timings": "measured/<gpu>/timings.csv",
    "published": "published.csv",
    "resources": "resources.csv",
    "counters": "measured/<gpu>/counters.csv",
    "sanitizers": "measured/<gpu>/sanitizers.csv",
    "counts": "counts.csv",
    "verdicts": "measured/<gpu>/verdicts.csv",
    "shapes": "measured/<gpu>/shapes.csv",
    "op_problems": "measured/<gpu>/op_problems.csv",
    "op": "measured/<gpu>/op.csv",
    "launches": "launches.csv",
    "hashes": "hashes.csv",
}


def dictionary() -> str:
    """The text of data/README.md."""
    lines = [
        "# Data dictionary",
        "",
        "Written by `python -m analysis dictionary`. Tidy CSV, one observation a row; flags are 0 and 1; an empty cell",
        "means that the column does not apply. A hash may be an older one, which `hashes.csv` leads to today's. Files",
        "under `measured/` are written by the commands that measure alone; `make archive` moves the rows of runs with",
        "two newer complete runs of their study, as they stand, to gzipped tables in `measured/<gpu>/history/`.",
        "",
        "`source_hash` tells which code was measured, `commit` where it lay. Two commits that runs of 2026-11-23 name,",
        "c15cda827d55 and 3338394df071, are not in the history: their changes were committed again under other names.",
        "",
        "The data are under CC BY 4.0 (../LICENSE-CC-BY-4.0.md).",
        "",
    ]
    for table, columns in SCHEMAS.items():
        lines += [f"## {PLACES[table]}", "", "| column | kind | meaning |", "|---|---|---|"]
        lines += [f"| {c.name} | {c.kind}{', may be empty' if c.optional else ''} | {c.meaning} |" for c in columns]
        lines.append("")
    lines += [
        "## measured/&lt;gpu&gt;/gpu.json",
        "",
        "What the GPU is (name, UUID, compute capability, SMs, memory, L2, power limit) and `ceilings`, each measured",
        "on it, empty until it is:",
        "read_gb_s, write_gb_s, copy_gb_s (DRAM; a copy counts bytes read and written), l2_read_gb_s,",
        "fp32_tflops (fused multiply-adds, each counted as two), tensor_tflops (matrix product in",
        "`tensor_dtype`: bfloat16, or float16 before compute capability 8.0; bfloat16 where it is not said),",
        "empty_kernel_us (in a CUDA graph), empty_launch_us (bare driver launches back to back).",
        "",
        "## figures.sha256",
        "",
        "Checksums of the CSVs that the reference's figures are drawn from, by `sha256sum *.csv` in",
        "`_build/nvidia-h200/figures`. `make book STRICT=1` compares them with those that it builds.",
        "",
        "## claims.yml",
        "",
        "What the documents claim and the tests that decide it; its head describes it. `make claims` writes",
        "`verdicts.csv` from it and from the tables above.",
        "",
        "## questions.yml",
        "",
        "What the chapters on fusion, contradictions and causes ask, what is measured for it, and which written answer",
        "follows; its head describes it.",
        "",
        "## printed.yml",
        "",
        "What stands beside a row of published.csv where its columns do not say so: an expression, or why nothing",
        "can; its head describes it.",
    ]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis dictionary", description=(__doc__ or "").splitlines()[0])
    parser.parse_args(arguments)
    path = DATA / "README.md"
    path.write_text(dictionary(), encoding="utf-8")
    print(f"[dictionary] {path}")
    return 0
