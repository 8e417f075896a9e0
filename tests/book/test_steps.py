"""A step of a ladder: its picture is its plan, its row is what is published and measured, its diff of the sources."""

import math
from functools import cache

import numpy as np
import pandas as pd
import pytest
from IPython.display import Markdown

from analysis import figures, tables
from analysis.book import notebook
from analysis.evidence import Evidence
from analysis.models import moves
from analysis.models.rivals import V8
from analysis.record import published
from analysis.record.files import COUNTS, problem_of, read_table
from analysis.tables.steps import ladder, shown, study_of
from analysis.tables.steps import problem_of as shown_at
from kernels import VERSIONS
from kernels.version import Launch

FAMILIES = ("attention", "sinusoidal", "rope", "fp16")


@cache
def counted() -> pd.DataFrame:
    return read_table(COUNTS, "counts")


@pytest.mark.parametrize("family", FAMILIES[1:])
def test_pictures_of_a_ladder_are_its_plans_and_counts(e: Evidence, family: str) -> None:
    for name, drawn in figures.steps(e, family).data.groupby("version", sort=False):
        plan = moves.plan_of(str(name), 64 if family == "fp16" else 2048)
        rows = drawn.to_dict("records")
        mine = counted()[counted()["version"] == name]
        mine = mine[[problem_of(row) == plan.problem for row in mine.to_dict("records")]]
        assert len(rows) == len(plan.steps), name
        place, rotated = 0, 0.0
        vectors = {"key": math.prod(plan.problem.kv_shape[:3]), "query": math.prod(plan.problem.q_shape[:3])}
        for row, planned in zip(rows, plan.steps):
            if not isinstance(planned, Launch):
                assert row["step"] == "host waits"
                continue
            assert row["grid"] == "x".join(map(str, planned.grid)) and row["shared_bytes"] == planned.shared_bytes
            counters = mine[mine["launch"] == place]["counter"]
            for way, told in (("read", row["reads"].split()), ("write", row["writes"].split())):
                found = {each.rpartition(".")[2] for each in counters if each.startswith(f"global.{way}.sectors.")}
                assert found - ({*row["writes"].split()} if way == "read" else set()) == {*told}, (name, way, place)
            rotated += sum((row[f"{what}_embedded"] or 0) * count for what, count in vectors.items())
            place += 1
        if family == "rope":
            assert rotated * plan.problem.rotary_dim / 2 == mine.query("counter == 'event.rotation'")["value"].sum()
        sectors = mine["counter"].isin(["global.read.sectors", "global.write.sectors"])
        assert rows[0]["global"] == mine[sectors]["value"].sum()
        for what, own in (("shared", "shared.wavefronts"), ("instr.", "warp_inst")):
            of_card = e.counter(str(name), moves.COUNTERS[what], problem=plan.problem)[plan.problem]
            emulated = mine[mine["counter"] == own]["value"].sum()
            assert rows[0][what] == (of_card.value if of_card else emulated), (name, what)


@pytest.mark.parametrize("family", FAMILIES)
def test_row_of_a_step_has_its_published_and_measured_times(e: Evidence, family: str) -> None:
    table = tables.steps(e, family).plain()
    rows = {version.id: dict(zip(table.header, row)) for version, row in zip(shown(family), table.rows, strict=True)}
    assert {v.variant_of or v.id for v in ladder(family)} == {
        v.id for v in VERSIONS.values() if v.family == family and v.of_log and not (v.fast_math or v.variant_of)
    }
    for name, row in rows.items():
        share, said, time = (row[what] for what in ("peak reached", "published", "whole card"))
        result = row.get("result", "right")  # a column that has one word alone is not shown
        problem, study = shown_at(e, name), study_of(e, name)
        if problem is None:
            assert not study.versions(family) and (result, time) == ("not measured", "not measured")
            continue
        known, us = study.known(name, problem), study.medians(name, problem, "device_warm")
        assert result.startswith("right") == (known.word == "ok"), name
        if np.isnan(us).all():
            assert time == known.word and share == "–"
            continue
        mean = math.exp(np.nanmean(np.log(us)))
        assert time.startswith(f"{mean:,.1f} µs")
        peak = e.gpu["ceilings"]["tensor_tflops" if family == "fp16" else "fp32_tflops"]
        least = problem.flops / peak / 1e6 / (2 * 512 / 513 if problem.causal else 1)
        if name == V8:  # on tensor cores, whose rate it is not
            assert share == "–"
        else:
            assert float(share.removesuffix(" %")) == pytest.approx(100 * least / mean, abs=0.005)
        if ms := published.published(name, problem):
            assert said.startswith(f"{1e3 * ms.value:,.0f} µs"), name


def test_step_shows_its_speed_and_its_diff(e: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Markdown] = []
    monkeypatch.setattr(notebook, "display", shown.append)
    notebook.step(e, "rope_v1b")
    notebook.step(e, "attention_tensor_core_v1_227k")
    diff, speed, other, refused = (str(each.data) for each in shown)
    gain = e.speedup("rope_v1b", "rope_separate", hdim=2048)[2048].value
    assert f"**{gain:.2f}×**" in speed and "published" in speed
    assert "\n--- rope_v1a\n+++ rope_v1b\n" in diff and "\n-" in diff and "\n+" in diff
    assert "infeasible" in refused and "KB" in refused.replace(" B", " KB")
    assert "\n--- attention_online\n+++ attention_tensor_core_v1\n" in other
    with pytest.raises(KeyError, match="no version is called 'rope_v0'"):
        notebook.step(e, "rope_v0")
