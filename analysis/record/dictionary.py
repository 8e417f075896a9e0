"""The text of data/README.md, which `python -m analysis dictionary` writes from the schemas."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from .columns import PROBLEM, SCHEMAS, Column
from .files import DATA, stored
from .runs import TABLES

HEAD = """# Data dictionary

Written by `python -m analysis dictionary`. Tidy CSV, one observation a row; flags are 0 and 1; an empty cell means that
the column does not apply, or did not exist yet. A hash may be an older one, which `hashes.csv` leads to today's.

`measured/<gpu>/<run>/` holds what one start on one card measured: `run.json`, and a CSV a table, gzipped once the run
is complete. Read them with `analysis.record.rows("nvidia-h200", "timings")`, or any reader of CSV. To add the runs of
another machine, copy their folders; to drop a run, delete its folder. Of counters, sanitizers and shapes the latest
rows of a version and problem, of a version, and of the whole table count.

`source_hash` tells which code was measured, `commit` where it lay. Two commits that runs of 2026-11-23 name,
c15cda827d55 and 3338394df071, are not in the history: their changes were committed again under other names.

A problem is one cell: `rope-b1-h4-s64-d2048-r128` has batch 1, 4 heads, 64 queries and keys, head dim 2048, of which
128 are rotated. What is not usual follows: `kv8` key heads, `k4096` keys, `o3` the first query's position, a dtype
other than float32, `causal`, `cache_rotated`, `table_float16`. Read by this project it is these columns:

"""
CARD = """## measured/&lt;gpu&gt;/gpu.json

What the GPU is (name, UUID, compute capability, SMs, memory, L2, power limit) and `ceilings`, each measured on it,
empty until it is: read_gb_s, write_gb_s, copy_gb_s (DRAM; a copy counts bytes read and written), l2_read_gb_s,
fp32_tflops (fused multiply-adds, each counted as two), tensor_tflops (matrix product in `tensor_dtype`: bfloat16, or
float16 before compute capability 8.0), empty_kernel_us (in a CUDA graph), empty_launch_us (bare driver launches back
to back), one_tile_gemm_us, one_tile_gemm_launch_us and all_tiles_gemm_us (the product of one tile of the log's fp16
kernel, in a graph and from the host, and of all tiles at once).

## figures.sha256

Checksums of the CSVs that the reference's figures are drawn from, by `sha256sum *.csv` in `_build/nvidia-h200/figures`.
`make book STRICT=1` compares them with those that it builds.

The data are under CC BY 4.0 (../LICENSE-CC-BY-4.0.md).
"""
RUNS = "One row a study: what `run.json` says of the run, and under `studies` of each study."


def _rows(columns: Iterable[Column]) -> str:
    lines = [f"| {c.name} | {c.kind}{', may be empty' if c.optional else ''} | {c.meaning} |" for c in columns]
    return "\n".join(["| column | kind | meaning |", "|---|---|---|", *lines]) + "\n\n"


def dictionary() -> str:
    """The text of data/README.md."""
    text = HEAD + _rows(PROBLEM)
    for table in SCHEMAS:
        place = f"measured/&lt;gpu&gt;/&lt;run&gt;/{table}.csv" if table in TABLES else f"{table}.csv"
        place = place.replace(f"{table}.csv", "run.json") if table == "runs" else place
        place = f"measured/&lt;gpu&gt;/{table}.csv" if table == "verdicts" else place
        text += f"## {place}\n\n" + (f"{RUNS}\n\n" if table == "runs" else "")
        text += _rows(c for c in stored(table, table in TABLES) if c.name not in {p.name for p in PROBLEM})
    return text + CARD


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis dictionary", description=(__doc__ or "").splitlines()[0])
    parser.parse_args(arguments)
    path = DATA / "README.md"
    path.write_text(dictionary(), encoding="utf-8")
    print(f"[dictionary] {path}")
    return 0
