"""Pages of the versions: one for each version of the log and of V8's family, with what changes one thing of it."""

import re
from dataclasses import replace
from html import escape
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.book import pages, sources
from analysis.evidence import Evidence
from analysis.measure import counters
from analysis.models.moves import example
from analysis.record.files import DataError
from analysis.tables import counts, versions
from analysis.tables.table import address, page_of
from kernels import VERSIONS, Problem
from kernels.device import reduce
from kernels.log.rope import v7_hybrid

ONE_EACH = ("attention_register_tiling", "sinusoidal_v5", "rope_v7", "fp16_phase4")


def test_each_version_stands_on_one_written_page(tmp_path: Path, e: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "page", lambda e, version: "")
    pages.write(e, tmp_path / "versions")
    assert {path.stem for path in tmp_path.glob("versions/*.md")} == {*map(page_of, VERSIONS)}
    of_peers = (tmp_path / "versions" / "peers.md").read_text(encoding="utf-8")
    assert all(f"<span id='{version.id}'></span>" in of_peers for version in VERSIONS.values() if version.is_peer)
    assert page_of("control_rope_v7_no_break") == "rope_v7" and page_of("torch_sdpa") == "peers"
    assert address("rope_v2_fast_math") == "rope_v2.html#rope_v2_fast_math" and address("rope_v8") == "rope_v8.html"


@pytest.mark.parametrize("name", ONE_EACH)
def test_version_page_has_its_times_and_hazards(name: str, e: Evidence) -> None:
    text = re.sub(r" data-label='[^']*'", "", pages.page(e, VERSIONS[name]))
    for study in versions.complete(e):
        for problem in versions.taken(study, VERSIONS[name]):
            times = study.medians(name, problem, "device_warm")
            half = (np.nanmax(times) - np.nanmin(times)) / 2 if not np.isnan(times).all() else None
            assert half is None or f"<small>± {half:.1f}" in text, problem
            if base := VERSIONS[name].baseline:
                ratio = e.speedup(name, base, study.name, "device_warm", problem=problem)[problem]
                assert not ratio or f"{ratio.value:.2f}×<br> <small>{ratio.low:.2f}–{ratio.high:.2f}</small>" in text
    assert all(escape(hazard.why) in text for hazard in example(VERSIONS[name]).hazards)
    for other in (each for each in VERSIONS if page_of(each) == name and each != name):
        assert f"<div id='{other}'></div>" in text and VERSIONS[other].title in text


def test_version_that_is_registered_gets_a_page(e: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    new = replace(VERSIONS["rope_v7"], id="rope_v99", parent="rope_v7", title="A new one")
    monkeypatch.setitem(VERSIONS, "rope_v99", new)
    text = pages.page(e, new)
    assert "# rope_v99\n" in text and "**A new one**" in text
    assert "No time was measured on the NVIDIA H100 80GB HBM3." in text
    with pytest.raises(KeyError, match="rope_v0"):
        pages.page(e, replace(new, parent="rope_v0"))


def test_every_version_has_a_listing_and_a_diff_to_its_parent() -> None:
    for each in (version for version in VERSIONS.values() if not version.is_peer):
        text = sources.kernel_text(each.id)
        kernel = '\nextern "C" __global__ void attention(' if "control" in each.id else "\ndef "
        assert kernel in f"\n{text}" and "\nlaunch " in text, each.id
    diff = sources.diff_text("rope_v7")
    assert diff.startswith(f"--- {VERSIONS['rope_v7'].parent}\n+++ rope_v7\n")
    assert "\n-launch rotate_tokens(q, cos, sin, q_rotated)" in diff and "\n-sync" in diff
    assert " fast-math\n" in sources.kernel_text("rope_v3_fast_math")  # how its kernel is built


def test_excerpt_is_the_lines_of_a_kernel_or_an_error() -> None:
    found = sources.excerpt(v7_hybrid, "while dim < hdim:", "dim += 4").splitlines()
    assert found[0] == "# kernels/log/rope/v7_hybrid.py"
    assert found[1] == "while dim < hdim:" and found[-1] == "    dim += 4"
    assert "    if dim + 3 >= hdim:" in found and len(found) == 8
    heading, *found = sources.excerpt(reduce.block_max, "if lane_id == 0:", "return").splitlines()
    assert heading == "# kernels/device/reduce.py, reduced" and "        shared[reduction] = value" in found
    for first, last in (("while dim < hdim:", "dim += 5"), ("while dim > hdim:", "dim += 4"), ("def", "dim += ")):
        with pytest.raises(DataError, match="lines begin with"):
            sources.excerpt(v7_hybrid, first, last)


def test_counters_are_summed_over_the_launches_but_averages() -> None:
    problem = Problem("rope", 1, 4, seq_q=64, hdim=512, rotary_dim=128)
    active, moved = "sm__warps_active.avg.pct_of_peak_sustained_active", "dram__bytes_read.sum, cold"
    read = [(0, moved, 1e6), (1, moved, 2.5e6), (0, active, 11.0), (1, active, 47.5)]
    frame = pd.DataFrame(read, columns=["launch", "metric", "value"])
    assert counts.totals({problem: frame}, "metric") == {problem: {moved: 3.5e6, active: 47.5}}
    assert {metric for metric, _, _ in counts.METRICS} <= set(counters.METRICS)
