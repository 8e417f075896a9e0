"""The model of when to fuse: on times made from a known law it finds the law, says what it is worth, and advises.

No time here was measured: the law is the model's own form with other constants, and noise.
"""

import dataclasses
import json
import math
import random
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import kernels.rope.hybrid_v8
import kernels.rope.separate_v8
import kernels.rope.v8  # noqa: F401 -- registers the versions of the map
from analysis.book import figures, tables
from analysis.book.chapters import fuse
from analysis.measure.studies import FUSIONS, NAIVE, STUDIES
from analysis.models import advice, cost, fit
from analysis.models.advice import short
from analysis.models.cost import Card
from analysis.models.fit import FULL, HYBRID, SEPARATE, Model, Point
from analysis.models.targets import Evidence, Rival
from analysis.records import files
from analysis.records.current import today
from analysis.records.files import DataError, append_rows, problem_columns
from analysis.records.interval import Ratio
from analysis.records.known import Known
from analysis.records.measured import CEILINGS, Measured, Time
from kernels import VERSIONS, Problem, Unsupported
from kernels.checking.check import supports
from kernels.version import Launch

NOISE = 0.02  # standard deviation of the logarithm of a time
GPU = {
    "name": "Test GPU",
    "slug": "test-gpu",
    "compute_capability": "9.0",
    "sms": 132,
    "l2_bytes": 60_000_000,
    "ceilings": {name: value for name, value in zip(CEILINGS, (4000.0, 8000.0, 60.0, 700.0, 0.5, 4.0))},
}
LOG_SHAPE = Problem("rope", 1, 4, seq_q=64, hdim=2048, rotary_dim=128)


def law(**factors: float) -> Model:
    """A card on which every term costs another 0.5 to 2 times what the model guesses, or the factor given."""
    card, draw = Card.of(GPU), random.Random(1)
    guesses = [term.prior(GPU["ceilings"]) for term in cost.TERMS.values()]
    drawn = [factors.get(name, math.exp(draw.uniform(-0.7, 0.7))) for name in cost.NAMES]
    return Model(card, tuple(guess * factor for guess, factor in zip(guesses, drawn)), 3.0)


def record(
    folder: Path, us: Callable[[str, Problem], float], left_out: Callable[[str, Problem], bool], noise: float = NOISE
) -> Measured:
    """A complete run of the study in which a version takes `us`, with noise in each of five processes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gpu.json").write_text(json.dumps(GPU))
    words = ("node", "driver", "cuda", "python", "numba", "numba_cuda", "torch", "throttle", "commit")
    row = {"run": "1", "study": "map", "complete": True, "seconds": 1.0, "sm_mhz_max": 1, "power_limit_w": 1}
    append_rows(folder / "runs.csv", "runs", [{**dict.fromkeys((*words, "started_at", "finished_at"), "x"), **row}])
    checks, timings = [], []
    draw = random.Random(0)
    for version, problem in STUDIES["map"].pairs():
        if left_out(version.id, problem) or not supports(version, problem):
            continue
        mine = {"run": "1", "study": "map", "version": version.id, **problem_columns(problem), "measured_at": "1"}
        mine |= {"source_hash": today(version.id), "status": "ok"}
        found = {"max_abs_err": 1e-7, "allowed_abs_err": 4e-7, "nan_share": 0.0}
        checks += [{**mine, **found, "inputs": kind} for kind in ("uniform", "sharp")]
        time = us(version.id, problem)
        timings += [
            {**mine, "process": i, "timer": "device_warm", "median_us": time * math.exp(draw.gauss(0, noise))}
            for i in range(1, 6)
        ]
    append_rows(folder / "checks.csv", "checks", checks)
    append_rows(folder / "timings.csv", "timings", timings)
    return Measured.read(folder, "map")


def none(version: str, problem: Problem) -> bool:
    return False


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> fit.Judged:
    return fit.judge(record(tmp_path_factory.mktemp("map") / "test-gpu", law().us, none))


def test_the_grid_spans_what_it_says_and_stays_short() -> None:
    study = STUDIES["map"]
    assert len(set(study.problems)) == len(study.problems) >= 60
    for name, low, high in (("seq_q", 1, 2048), ("seq_k", 16, 4096), ("hdim", 64, 4096), ("rotary_dim", 32, 4096)):
        sizes = [getattr(problem, name) for problem in study.problems]
        assert (min(sizes), max(sizes)) == (low, high), name
    heads = [problem.batch * problem.heads for problem in study.problems]
    assert (min(heads), max(heads)) == (1, 128)
    timed = [(version, problem) for version, problem in study.pairs() if supports(version, problem)]
    assert {version.id for version, _ in timed} == {*FUSIONS, NAIVE}
    assert len(timed) * 5 * 0.28 < 6 * 60  # seconds: five processes
    assert all(supports(VERSIONS[version], problem) for version in FUSIONS for problem in study.problems)
    assert max(problem.flops for version, problem in timed if version.id == NAIVE) <= 4 * 2**30
    assert {fit.regime(problem) for problem in study.problems} == set(fit.REGIMES)


def test_the_fit_finds_the_law_on_problems_that_it_has_not_seen(judged: fit.Judged) -> None:
    held = judged.points[judged.points["held_out"]]
    # A time is the median of five noisy ones; three deviations of one are far above the median error of a true model.
    assert fit.errors(held).median() < 100 * 3 * NOISE
    truth = law()
    for version in FUSIONS:
        for problem in judged.held():
            assert judged.model.us(version, problem) == pytest.approx(truth.us(version, problem), rel=0.25)


def test_the_last_bits_of_the_input_do_not_reach_the_constants(judged: fit.Judged) -> None:
    """Sums in another order and times that differ in the tenth digit move an optimum more than another machine does."""
    points = fit.points_of(judged.evidence)
    moved = tuple(point._replace(us=point.us * (1 + 1e-10 * (-1) ** i)) for i, point in enumerate(reversed(points)))
    assert fit.fit(moved, judged.model.card) == fit.fit(points, judged.model.card)


def test_the_model_answers_better_than_any_constant(judged: fit.Judged) -> None:
    found = fit.answers(judged).set_index("answer")
    constants = found.drop(index="the model")
    assert found["right"]["the model"] >= 90
    assert found["right"]["the model"] > constants["right"].max()
    assert found["lost"]["the model"] < constants["lost"].min()
    assert (found["strictly"] <= found["right"]).all() and (found["lost"] <= found["worst"]).all()


def test_a_problem_is_on_one_side_and_every_regime_on_both(judged: fit.Judged) -> None:
    sides = judged.points.groupby("problem")["held_out"].nunique()
    assert (sides == 1).all()
    by_regime = judged.points.drop_duplicates("problem").groupby("regime")["held_out"].mean()
    assert set(by_regime.index) == set(fit.REGIMES) and by_regime.between(0.2, 0.4).all()
    order = list(STUDIES["map"].problems)
    assert fit.held_out(order) == fit.held_out(reversed(order))


def test_what_is_held_out_does_not_touch_the_fit(tmp_path: Path, judged: fit.Judged) -> None:
    truth, held = law(), fit.held_out(STUDIES["map"].problems)
    other = record(tmp_path / "test-gpu", lambda v, p: truth.us(v, p) * (3 if p in held else 1), none)
    again = fit.judge(other)
    # Noise is drawn in the same order: equal but for the digits that a CSV keeps.
    assert again.model.costs == pytest.approx(judged.model.costs, rel=1e-3)
    rows = again.points["held_out"]
    assert fit.errors(again.points[rows]).median() > 60 > fit.errors(again.points[~rows]).median()
    assert again.bars[1] > 2.5 > judged.bars[1]


def test_a_tie_counts_as_right(tmp_path: Path) -> None:
    us = {FULL: 10.0, HYBRID: 10.1, SEPARATE: 20.0, NAIVE: 90.0}
    found = fit.judge(record(tmp_path / "test-gpu", lambda version, problem: us[version], none, noise=0))
    for problem in found.held():
        assert {FULL, HYBRID} <= found.winners(problem) and SEPARATE not in found.winners(problem)
    rows = fit.answers(found).set_index("answer")
    assert rows["right"]["always hybrid"] == 100 > rows["strictly"]["always hybrid"]
    assert rows["right"]["always separate"] == 0
    assert rows["lost"]["always separate"] == pytest.approx(100)


def test_versions_that_were_not_timed_everywhere_are_left_out_of_the_answers(tmp_path: Path) -> None:
    missing = set(STUDIES["map"].problems[::5])
    found = fit.judge(record(tmp_path / "test-gpu", law().us, lambda v, p: v == HYBRID and p in missing))
    assert set(found.problems) == set(STUDIES["map"].problems) - missing
    assert len(fit.answers(found)) == 4


def test_too_few_problems_are_one_clear_message(tmp_path: Path) -> None:
    few = set(STUDIES["map"].problems[:6])
    measured = record(tmp_path / "test-gpu", law().us, lambda version, problem: problem not in few)
    with pytest.raises(DataError, match=r"\d problems of study 'map' were timed; the model needs 12"):
        fit.judge(measured)


# ---------------------------------------------------------------- what a launch does


def done(version: str, problem: Problem, term: str) -> float:
    rows = cost.work(VERSIONS[version](problem), Card.of(GPU))
    return float(rows[:, cost.NAMES.index(term)].sum())


def test_the_family_differs_in_launches_and_rotations_alone() -> None:
    assert [done(version, LOG_SHAPE, "launch") for version in FUSIONS] == [1, 2, 3]
    rotations = [done(version, LOG_SHAPE, "rotation") for version in FUSIONS]
    assert rotations[0] > rotations[1] > rotations[2] == 0
    for term in ("start", "round", "mma", "wgmma", "copy"):
        assert len({done(version, LOG_SHAPE, term) for version in FUSIONS}) == 1, term
    megabytes = 4 * math.prod(LOG_SHAPE.kv_shape) / 1e6  # read and written, and the table of frequencies
    assert done(HYBRID, LOG_SHAPE, "rewrite") == pytest.approx(2 * megabytes, rel=1e-3)
    assert done(SEPARATE, LOG_SHAPE, "rewrite") == pytest.approx(4 * megabytes, rel=1e-3)


def test_rotations_grow_with_tiles_of_queries_and_rotated_dims() -> None:
    short = Problem("rope", 1, 128, seq_q=64, seq_k=128, hdim=128, rotary_dim=64)
    long = dataclasses.replace(short, seq_q=128, q_offset=None)
    assert done(FULL, long, "rotation") == pytest.approx(2 * done(FULL, short, "rotation"), rel=0.1)
    assert done(FULL, dataclasses.replace(short, rotary_dim=128), "rotation") > done(FULL, short, "rotation")


@pytest.mark.parametrize("version", FUSIONS)
def test_what_a_core_does_is_not_read_from_its_name(version: str) -> None:
    plan, card = VERSIONS[version](LOG_SHAPE), Card.of(GPU)

    def renamed(launch: Launch) -> Launch:
        return dataclasses.replace(launch, kernel=dataclasses.replace(launch.kernel, function=renamed))

    other = dataclasses.replace(plan, steps=tuple(renamed(launch) for launch in plan.launches))
    assert (cost.work(other, card) == cost.work(plan, card)).all()
    assert cost.work(plan, card)[-1, cost.NAMES.index("wgmma")] > 0


def test_a_card_without_clusters_pays_for_the_products_of_the_portable_core() -> None:
    card = Card.of({**GPU, "compute_capability": "7.5"})
    amounts = cost.work(VERSIONS[FULL](LOG_SHAPE, card.target), card).sum(axis=0)
    done = dict(zip(cost.NAMES, amounts))
    assert done["portable"] > 0 and done["rotation"] > 0 and done["round"] > 0
    assert not any(done[name] for name in ("wgmma", "mma", "exchange", "naive_round", "naive_dim"))


def test_keys_rotated_together_are_rotated_once_whatever_the_queries() -> None:
    short = Problem("rope", 1, 8, seq_q=2048, seq_k=4096, hdim=128, rotary_dim=64)
    long = dataclasses.replace(short, seq_q=4096, q_offset=None)
    for problem, tiles in ((short, 2), (long, 1)):
        assert done(FULL, problem, "wait") == 1 and done(HYBRID, problem, "wait") == 0
        rotated = (done(FULL, problem, "rotation") - done(HYBRID, problem, "rotation")) * 1e6 / GPU["sms"]
        assert rotated == pytest.approx(tiles * 64 * 32)
        assert done(FULL, problem, "together") * 1e6 / GPU["sms"] == pytest.approx(2 * 4 * tiles * 64 * 128)


def test_a_mask_saves_less_than_half() -> None:
    full = Problem("rope", 1, 32, seq_q=1024, hdim=128, rotary_dim=64)
    masked = dataclasses.replace(full, causal=True)
    for term in ("round", "copy"):
        assert 0.5 < done(FULL, masked, term) / done(FULL, full, term) < 1


def test_what_l2_does_not_hold_comes_from_memory() -> None:
    small = Problem("rope", 1, 8, seq_q=1, seq_k=1024, hdim=128, rotary_dim=64)
    assert done(FULL, small, "memory") == 0
    assert done(FULL, dataclasses.replace(small, heads=128, kv_heads=128), "memory") > 100


# ---------------------------------------------------------------- advice


@pytest.fixture
def measured(judged: fit.Judged, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The synthetic card is the only one measured."""
    record(tmp_path / "test-gpu", law().us, none)
    monkeypatch.setattr(files, "MEASURED", tmp_path)


def test_advice_says_what_is_asked_and_allowed(measured: None) -> None:
    with pytest.raises(DataError, match="no GPU called 'abacus' has been measured; there is: test-gpu"):
        advice.advise(LOG_SHAPE, "abacus")
    with pytest.raises(Unsupported, match="rotary_dim is 0; it must be even and above 0"):
        advice.advise(dataclasses.replace(LOG_SHAPE, rotary_dim=0), "test-gpu")
    with pytest.raises(Unsupported, match="dtype is float16; this version takes float32"):
        advice.advise(dataclasses.replace(LOG_SHAPE, dtype="float16"), "test-gpu")
    with pytest.raises(Unsupported, match="family is attention; this version takes rope"):
        advice.advise(Problem("attention"), "test-gpu")
    with pytest.raises(Unsupported, match="hdim is 66; it must be a multiple of 4"):
        advice.advise(Problem("rope", hdim=66, rotary_dim=32), "test-gpu")


def test_a_card_without_the_study_is_one_clear_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path / "test-gpu", law().us, none)
    runs = (tmp_path / "test-gpu" / "runs.csv").read_text()
    (tmp_path / "test-gpu" / "runs.csv").write_text(runs.replace("map", "log"))
    monkeypatch.setattr(files, "MEASURED", tmp_path)
    with pytest.raises(DataError, match="study 'map' is not measured on the Test GPU: `make measure STUDY=map` does"):
        advice.advise(LOG_SHAPE, "test-gpu")


def test_advice_has_error_bars_and_a_runner_up(measured: None) -> None:
    given = advice.advise(LOG_SHAPE, "test-gpu")
    assert set(given.times) == set(FUSIONS)
    assert all(taken.low < taken.us < taken.high for taken in given.times.values())
    assert given.choice == min(FUSIONS, key=lambda version: given.times[version].us)
    assert given.margin.low < given.margin.value < given.margin.high
    assert given.margin.value == pytest.approx(given.times[given.runner_up].us / given.times[given.choice].us)
    assert given.choice in given.text and f"{given.margin.value:.2f} times" in given.text
    assert given.outside == () and "Beyond" not in given.text


@pytest.mark.parametrize(
    ("dims", "named"),
    [
        ({"heads": 4, "seq_q": 64}, False),
        ({"heads": 128, "seq_q": 1, "seq_k": 65}, True),
        ({"heads": 16, "seq_q": 64, "seq_k": 65}, True),
        ({"heads": 16, "seq_q": 65, "seq_k": 65}, False),
        ({"batch": 2, "heads": 8, "kv_heads": 2, "seq_q": 64, "seq_k": 2048}, True),
        ({"batch": 2, "heads": 9, "kv_heads": 9, "seq_q": 64, "seq_k": 2048}, False),
    ],
)
def test_advice_names_pytorch_where_few_queries_meet_many_keys(
    judged: fit.Judged, dims: dict[str, int], named: bool
) -> None:
    problem = Problem("rope", **{"hdim": 128, "rotary_dim": 128, **dims})
    assert ("PyTorch, compiled as one graph" in advice.advice_of(judged, problem).text) is named


def test_error_bars_cover_nine_of_ten_held_out_points(judged: fit.Judged) -> None:
    rows = judged.points[judged.points["held_out"] & judged.points["version"].isin(FUSIONS)]
    low, high = judged.bars
    ratio = rows["measured_us"] / rows["predicted_us"]
    assert ratio.between(low, high).mean() == pytest.approx(fit.COVERED, abs=2 / len(rows))


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (Problem("rope", 1, 8, seq_q=1, seq_k=131_072, hdim=128, rotary_dim=128), "seq_k is 131,072, measured from 16"),
        (Problem("rope", 1, 4, seq_q=64, hdim=16_384, rotary_dim=128), "hdim is 16,384, measured from 64 to 4,096"),
        (Problem("rope", 8, 32, seq_q=64, hdim=128, rotary_dim=128), "batch x heads is 256, measured from 1 to 128"),
        (Problem("rope", 1, 128, seq_q=2048, hdim=128, rotary_dim=128), "GFLOP is 274.878"),
        (Problem("rope", 1, 1, seq_q=1, seq_k=4096, hdim=4096, rotary_dim=4096), "within a factor of 4 in everything"),
    ],
)
def test_advice_beyond_what_was_measured_says_so(judged: fit.Judged, problem: Problem, said: str) -> None:
    given = advice.advice_of(judged, problem)
    assert any(said in text for text in given.outside), given.outside
    assert said in given.text


def test_every_measured_problem_lies_inside(judged: fit.Judged) -> None:
    assert not any(advice.outside(problem, judged.problems) for problem in judged.problems)


def test_advice_flips_where_rotating_again_costs_more_than_a_launch() -> None:
    """With dear rotations full fusion wins where one tile holds all keys, and not where many tiles rotate them."""
    card = law(launch=2.0, rotation=4.0, turn=0.1, rewrite=1.0)
    short = Problem("rope", 1, 4, seq_q=64, hdim=512, rotary_dim=128)
    prefill = Problem("rope", 1, 8, seq_q=2048, hdim=128, rotary_dim=128)
    assert min(FUSIONS, key=lambda version: card.us(version, short)) == FULL
    assert min(FUSIONS, key=lambda version: card.us(version, prefill)) in (HYBRID, SEPARATE)
    points = tuple(
        Point(version, problem, card.us(version, problem)) for problem in STUDIES["map"].problems for version in FUSIONS
    )
    model = fit.fit(points, card.card)
    for problem in (short, prefill):
        expected = min(FUSIONS, key=lambda version: card.us(version, problem))
        assert min(FUSIONS, key=lambda version: model.us(version, problem)) == expected


def test_the_command_advises(measured: None, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--gpu", "test-gpu", "--heads", "32", "--seq-q", "1", "--seq-k", "4096", "--rotary-dim", "64"]
    assert advice.main(asked) == 0
    said = capsys.readouterr().out
    assert said.startswith("rope B1 H32 S1/4096 D128 R64\nOn the Test GPU: ")
    assert all(version in said for version in FUSIONS) and said.count("µs") == 4
    assert advice.main(["--gpu", "test-gpu", "--hdim", "66"]) == 1
    assert capsys.readouterr().err == "advise: hdim is 66; it must be a multiple of 4\n"
    assert advice.main(["--gpu", "abacus"]) == 1
    assert "there is: test-gpu" in capsys.readouterr().err
    assert advice.main(asked[2:]) == 0 and "On the Test GPU" in capsys.readouterr().out  # the only card there is


def test_advice_never_names_a_version_that_the_card_refuses(
    judged: fit.Judged, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = advice.advice_of(judged, LOG_SHAPE).choice
    truly = advice.known

    def refuse(evidence: Measured, version: str, problem: Problem) -> Known:
        return Known("unsupported", "no clusters") if version in refused else truly(evidence, version, problem)

    monkeypatch.setattr(advice, "known", refuse)
    refused = {choice}
    given = advice.advice_of(judged, LOG_SHAPE)
    assert given.choice != choice and choice not in given.times and given.runner_up not in (None, choice)
    refused = set(FUSIONS) - {choice}
    alone = advice.advice_of(judged, LOG_SHAPE)
    assert alone.choice == choice and alone.runner_up is None and "no other version" in alone.text
    refused = set(FUSIONS)
    with pytest.raises(Unsupported, match="no clusters"):
        advice.advice_of(judged, LOG_SHAPE)


# ---------------------------------------------------------------- what the chapter shows


def test_the_map_names_every_problem_and_its_winner(judged: fit.Judged, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = judged.problems[:2]
    ratios = {one: Ratio(0.5, 0.4, 0.6), other: Ratio(0.98, 0.95, 1.01)}
    peers = {
        each: Rival("torch_rope_one_graph", Time(5.0, 4.0, 6.0), found, judged.evidence)
        for each, found in ratios.items()
    }
    monkeypatch.setattr(figures.when_to_fuse, "beside_one_graph", lambda evidence: peers)
    evidence = Evidence("test-gpu", judged.evidence.gpu, {}, pd.DataFrame(), pd.DataFrame())
    plot = figures.fusion_map(judged, evidence)
    beaten = plot.data.set_index("problem")["beaten"]
    assert beaten[str(one)] and not beaten[str(other)] and beaten.sum() == 1
    assert len(plot.data) == len(judged.problems) and set(plot.data["winner"]) <= set(FUSIONS)
    assert (plot.data["margin"] >= 1).all()
    for row, problem in zip(plot.data.sort_index().itertuples(), judged.problems, strict=True):
        assert (row.outcome == "hybrid or separate is faster") == (FULL not in judged.winners(problem))
    rows = tables.map_problems(judged).rows
    assert len(rows) == len(judged.problems)
    assert sum(" *" in row[1] for row in rows) == len(judged.held())


def test_tables_say_what_the_model_is_worth(judged: fit.Judged) -> None:
    assert [row[0] for row in tables.map_answers(judged).rows] == [
        "the model", "always full fusion", "always hybrid", "always separate",
    ]  # fmt: skip
    assert [row[0] for row in tables.map_regimes(judged).rows] == list(fit.REGIMES)
    assert [row[0].split("<")[0] for row in tables.advice(judged).rows] == list(advice.TYPICAL)


def test_what_the_model_is_worth_is_beside_the_best_constant_answer(judged: fit.Judged) -> None:
    worth, right = fuse.worth(judged), fit.answers(judged).set_index("answer")["right"]
    assert worth.figures["problems"] == len(judged.held())
    assert worth.figures["right"] == f"{right['the model']:.0f} %"
    assert worth.better is bool(right["the model"] > right.drop("the model").max())
    assert fuse.worth(None).better is None


def test_gains_tell_the_worst_and_whether_anything_is_much_slower() -> None:
    some = fuse.Gains({0: Ratio(1.5, 1.4, 1.6), 1: Ratio(0.8, 0.7, 0.9), 2: Ratio(0.99, 0.9, 1.1)})
    assert (len(some), some.worst, some.never_much_slower) == (3, "1.25×", False)
    assert fuse.Gains({2: Ratio(0.98, 0.97, 0.99)}).never_much_slower
    assert fuse.Gains().never_much_slower is None


def test_outcomes_are_none_where_nothing_was_timed_and_else_told_by_what_is_fastest() -> None:
    none, mixed = fuse.outcomes(None, short), fuse.Outcomes(won=1, tied=3, lost=2)
    assert (none.problems, none.all_won, none.more_won, none.more_lost) == (0, None, None, None)
    assert (mixed.problems, mixed.all_won, mixed.more_won, mixed.more_lost) == (6, False, False, True)
    assert fuse.Outcomes(won=2).all_won and not fuse.Outcomes(won=2).more_lost
    found = [fit.outcome(fastest) for fastest in ({fit.FULL}, {fit.FULL, fit.HYBRID}, {fit.SEPARATE})]
    assert found == [fit.ALONE, fit.TIES, fit.LOSES]
