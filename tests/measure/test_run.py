"""Studies on a made-up card: rows come early, whatever fails is a row with its reason, nothing is tried for ever."""

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch

from analysis import record
from analysis.evidence.siblings import standing
from analysis.measure import on_gpu, workers
from analysis.measure import run as measure
from analysis.measure.timing import ENOUGH_US, HARNESS_SAMPLES
from analysis.record import files
from analysis.studies import Study, matched
from kernels import Problem
from kernels.runtime.gpu import GpuError
from tests.measure.stub_card import IN_PLACE, Ends, MadeUp

NAMES = ("attention_online", "attention_online_fixed", "attention_v8", "torch_sdpa")
PROBLEMS = tuple(Problem("attention", heads=2, seq_q=64, hdim=hdim) for hdim in (64, 128))
TIMERS = ("device_warm", "device_cold", "launched")


def study(name: str, timers: tuple[str, ...] = TIMERS) -> Study:
    return Study(name, "", timers, ((NAMES, PROBLEMS),))


LOG, FILLED = study("log"), study("filled", ("device_warm",))
PAIRS = len(NAMES) * len(PROBLEMS)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MadeUp:
    card = MadeUp()

    @contextlib.contextmanager
    def compilers(target: str) -> Iterator[Callable[..., None]]:
        yield lambda build, jobs: card.did.extend((0, "compile", name) for name, _ in jobs)

    monkeypatch.setattr(on_gpu, "CARD", card)
    monkeypatch.setattr(measure, "workers", SimpleNamespace(**{**vars(IN_PLACE), "compilers": compilers}))
    monkeypatch.setattr(files, "MEASURED", tmp_path)
    return card


def tables(folder: Path) -> dict[str, Any]:
    return {name: record.rows(folder / "made-up-card", name) for name in ("runs", "checks", "timings")}


def measured(folder: Path, *studies: Study, processes: int = 1) -> dict[str, Any]:
    """The tables of the card once the studies are measured."""
    measure.measure_studies([*studies], processes)
    return tables(folder)


def require_no_more(card: MadeUp, *studies: Study, processes: int) -> None:
    """That what is measured is not measured again."""
    before = len(card.did)
    measure.measure_studies([*studies], processes)
    assert len(card.did) == before


def test_study_is_done_before_the_next_begins(card: MadeUp, tmp_path: Path, capsys: Any) -> None:
    measure.measure_studies([LOG, FILLED], processes=2)
    steps = [step for _, step, _ in card.did if step in ("compile", "launched")]
    own = 3 * len(PROBLEMS)  # a peer is not compiled by the host
    assert steps[:own] == ["compile"] * own == steps[-own:] and len(steps) > 2 * own
    found = tables(tmp_path)
    assert list(found["checks"]["study"]) == ["log"] * 2 * PAIRS + ["filled"] * 2 * PAIRS
    assert set(found["checks"]["core"]) == {"of sm_90"}
    rows = found["timings"].groupby(["study", "process", "timer"]).size()
    assert dict(rows) == {
        **{("log", process, timer): PAIRS for process in (1, 2) for timer in TIMERS},
        **{("filled", process, "device_warm"): PAIRS for process in (1, 2)},
    }
    about = found["runs"]
    assert list(about["complete"]) == [True, True]
    assert set(about["throttle"]) == {"none"}
    assert "log: 8 ok; 48 timings, of which 0 failed" in capsys.readouterr().out
    require_no_more(card, LOG, FILLED, processes=2)


def test_process_lasts_over_the_studies_and_times_in_an_order_of_its_own(card: MadeUp) -> None:
    measure.measure_studies([LOG, FILLED], processes=2)
    timed = [(process, name) for process, step, name in card.did if step == "device_warm"]
    by_process = {process: [name for each, name in timed if each == process] for process, _ in timed}
    assert [len(names) for names in by_process.values()] == [2 * PAIRS, 2 * PAIRS]
    halves = [names[at : at + PAIRS] for names in by_process.values() for at in (0, PAIRS)]
    assert len({tuple(half) for half in halves}) > 2, "one order for all"


def test_harness_samples_alternate_their_order_against_drift(card: MadeUp, tmp_path: Path) -> None:
    drift = itertools.count(100)
    card.us = lambda name: float(next(drift))
    measure.measure_studies([LOG], processes=1)
    taken = [(problem, name) for timer, name, problem in card.taken if timer == "launched"]
    for _, shape in itertools.groupby(taken, lambda each: each[0]):
        names = [name for _, name in shape]
        turns = [names[at : at + len(NAMES)] for at in range(0, len(names), len(NAMES))]
        assert len(turns) == HARNESS_SAMPLES and sorted(turns[0]) == sorted(NAMES)
        assert all(turn == (turns[0] if place % 2 == 0 else turns[0][::-1]) for place, turn in enumerate(turns))
    rows = tables(tmp_path)["timings"].query("timer == 'launched'")
    assert set(rows["n"]) == {HARNESS_SAMPLES}
    assert list(rows.groupby("hdim")["median_us"].nunique()) == [1] * len(PROBLEMS)


def test_long_call_takes_one_sample_of_the_harness(card: MadeUp, tmp_path: Path) -> None:
    card.us = lambda name: ENOUGH_US / 20 if name == "attention_v8" else 2.0  # 20 calls are a sample
    rows = measured(tmp_path, LOG)["timings"].query("timer == 'launched'")
    assert {*zip(rows["version"], rows["n"])} == {
        (name, 1 if name == "attention_v8" else HARNESS_SAMPLES) for name in NAMES
    }


def test_study_is_measured_on_the_problems_of_the_card_at_hand(card: MadeUp, tmp_path: Path) -> None:
    theirs = tuple(Problem("attention", heads=96, seq_q=64, hdim=hdim) for hdim in (64, 128))
    measure.measure_studies([Study("matched", "", TIMERS, ((("attention_online",), theirs),), matched)], processes=1)
    found = tables(tmp_path)
    for table in ("checks", "timings"):  # 2 of 48 SMs
        assert set(zip(found[table]["heads"], found[table]["kv_heads"])) == {(4, 4)}
    assert {problem.heads for _, _, problem in card.taken} == {4}


def test_compiled_peers_are_loaded_before_checks(card: MadeUp, tmp_path: Path, monkeypatch: Any) -> None:
    ahead = ("torch_sdpa", "attention_v8")
    monkeypatch.setattr(measure, "loads_ahead", lambda version: version.id in ahead)
    card.does["torch_sdpa", "plan"] = RuntimeError("it does not compile")
    measure.measure_studies([FILLED], processes=2)
    loaded = [(process, name) for process, step, name in card.did if step == "plan"][: 3 * 2 * len(PROBLEMS)]
    assert Counter(loaded) == Counter(
        {(process, name): len(PROBLEMS) for process in {each for each, _ in loaded} for name in ahead}
    )
    assert len({process for process, _ in loaded}) == 3, "a checker and two that time"
    statuses = tables(tmp_path)["checks"].groupby("version")["status"].unique().map(list)
    assert statuses["torch_sdpa"] == ["unsupported"] and statuses["attention_v8"] == ["ok"]


OOM = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 80.00 GiB.\nMore about it")
RUNTIME_OOM = torch.AcceleratorError("CUDA error: out of memory")
RUNTIME_OOM.error_code = 2  # type: ignore[attr-defined]  # cudaErrorMemoryAllocation
DRIVER_OOM = GpuError("the CUDA driver answered CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_OUT_OF_MEMORY")


@pytest.mark.parametrize("name", ["attention_online", "torch_sdpa"])
@pytest.mark.parametrize(
    "error",
    [OOM, RUNTIME_OOM, DRIVER_OOM, MemoryError("Unable to allocate")],
    ids=["torch", "runtime", "driver", "host"],
)
def test_out_of_memory_row_says_how_much_is_free(card: MadeUp, tmp_path: Path, name: str, error: Exception) -> None:
    wrapper = RuntimeError("backend='inductor' raised")
    wrapper.__cause__ = error
    card.does[name, "check"] = wrapper
    found = measured(tmp_path, FILLED)
    checks = found["checks"][found["checks"]["version"] == name]
    assert set(checks["status"]) == {"error"} and len(checks) == 2 * len(PROBLEMS)
    assert all(why.startswith("out of memory: 0.50 GB are free: ") for why in checks["reason"])
    assert set(found["checks"]["status"]) == {"ok", "error"} and list(found["runs"]["complete"]) == [True]


def test_peer_refused_by_its_library_is_unsupported_and_wrong_is_not_timed(card: MadeUp, tmp_path: Path) -> None:
    for name in ("attention_online_fixed", "torch_sdpa"):
        card.does[name, "check"] = RuntimeError("No available kernel.\nAborting")
    card.does["attention_v8", "check"], card.wrong = KeyError("a bug"), "attention_online"
    found = measured(tmp_path, LOG)
    told = {name: {*zip(rows["status"], rows["reason"])} for name, rows in found["checks"].groupby("version")}
    wrong = "declared ok, found wrong: max_abs_err 1e-07, allowed 4e-07, NaN share 0"
    assert told == {
        "torch_sdpa": {("unsupported", "No available kernel.")},
        "attention_online_fixed": {("error", "No available kernel.")},
        "attention_v8": {("error", "KeyError: 'a bug'")},
        "attention_online": {("error", wrong)},
    }
    assert found["timings"].empty


LOST = {
    "poisoned": torch.AcceleratorError("CUDA error: an illegal memory access was encountered\nMore"),
    "hang": Ends(workers.Hang("a measuring process has sent nothing for 300 s")),
    "died": Ends(workers.MeasureError("a measuring process died with exit code -9")),
}


@pytest.mark.parametrize("how", LOST)
def test_pair_that_takes_its_process_along_is_lost_alone(card: MadeUp, tmp_path: Path, how: str) -> None:
    card.does["attention_online_fixed", "check"] = LOST[how]
    found = measured(tmp_path, LOG, FILLED, processes=2)
    checks = found["checks"]
    assert len(checks) == 4 * PAIRS and not checks.duplicated(["study", "version", "hdim", "inputs"]).any()
    lost = checks[checks["version"] == "attention_online_fixed"]
    assert set(lost["reason"]) == {str(LOST[how]).splitlines()[0]} and set(lost["status"]) == {"error"}
    assert set(checks[checks["version"] != "attention_online_fixed"]["status"]) == {"ok"}
    tried = [name for _, step, name in card.did if (step, name) == ("check", "attention_online_fixed")]
    assert len(tried) == len(PROBLEMS), "what is lost is tried again"
    assert list(found["runs"]["complete"]) == [True, True]


@pytest.mark.parametrize("how", LOST)
def test_timing_that_takes_its_process_along_is_a_row_of_every_process(card: MadeUp, tmp_path: Path, how: str) -> None:
    card.does["attention_v8", "launched"] = LOST[how]
    timings = measured(tmp_path, LOG, processes=3)["timings"]
    assert len(timings) == 3 * 3 * PAIRS and not timings.duplicated(["process", "version", "hdim", "timer"]).any()
    failed = timings[timings["status"] == "error"]
    assert set(failed["version"]) == {"attention_v8"} and set(failed["process"]) == {1, 2, 3}
    assert ("attention_v8", "launched") in set(zip(failed["version"], failed["timer"]))
    rest = timings[(timings["timer"] == "launched") & (timings["version"] != "attention_v8")]
    assert set(rest["n"]) == {HARNESS_SAMPLES}, "what was timed beside it lacks samples"
    assert failed["median_us"].isna().all() and set(failed["reason"]) == {str(LOST[how]).splitlines()[0]}
    tried = [name for _, step, name in card.did if (step, name) == ("launched", "attention_v8")]
    assert len(tried) == len(PROBLEMS)
    require_no_more(card, LOG, processes=3)


def test_copies_that_do_not_fit_cost_the_cold_time_alone(card: MadeUp, tmp_path: Path) -> None:
    card.does["attention_online", "copy"] = OOM
    rows = measured(tmp_path, LOG)["timings"].query("version == 'attention_online'")
    assert dict(rows.groupby("timer")["status"].unique().map(list)) == {
        "device_cold": ["error"], "device_warm": ["ok"], "launched": ["ok"],
    }  # fmt: skip


def test_card_that_no_process_can_begin_on_ends_the_run_with_one_message(card: MadeUp, monkeypatch: Any) -> None:
    def gone(tasks: Any, send: Any) -> None:
        raise workers.MeasureError("no CUDA GPU is visible")

    monkeypatch.setattr(measure, "check_all", gone)
    with pytest.raises(workers.MeasureError, match="no CUDA GPU is visible"):
        measure.measure_studies([LOG], processes=1)


def test_ceilings_that_fail_end_nothing(card: MadeUp, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    def survey(send: Any) -> None:
        raise workers.MeasureError("out of memory\nMore")

    monkeypatch.setattr(measure, "survey", survey)
    measure.measure_studies([FILLED], processes=1)
    assert "ceilings were not measured: out of memory\n" in capsys.readouterr().out
    assert list(tables(tmp_path)["runs"]["complete"]) == [True]


def slow(card: MadeUp, name: str, *slow_calls: int) -> None:
    """Have the calls of a version by device_warm at these places take 4 times as long: a process that is off."""
    take, calls = card.measure, itertools.count()

    def measured(program: Any, timer: str, *how: Any) -> list[float]:
        samples = take(program, timer, *how)
        if (timer, program.name) != ("device_warm", name):
            return samples
        return [4 * us for us in samples] if next(calls) in slow_calls else samples

    card.measure = measured  # type: ignore[method-assign]


def test_process_that_is_off_is_measured_again_and_both_rows_stay(card: MadeUp, tmp_path: Path, capsys: Any) -> None:
    slow(card, "attention_v8", 2 * len(PROBLEMS))  # the first problem of process 3
    found = measured(tmp_path, FILLED, processes=4)
    again = found["timings"][found["timings"]["repeated"].eq(True)]
    assert len(found["timings"]) == 4 * PAIRS + 1 and list(found["runs"]["repeated"]) == [1]
    [row] = again.to_dict("records")
    both = found["timings"].query("version == 'attention_v8' and process == 3 and hdim == @row['hdim']")
    assert (row["process"], row["version"]) == (3, "attention_v8") and list(both["median_us"]) == [8.0, 2.0]
    assert "33 timings, of which 0 failed and 1 were repeats" in capsys.readouterr().out
    assert set(standing(found["timings"])["median_us"]) == {2.0}, "the repeat does not replace"
    require_no_more(card, FILLED, processes=4)


def test_outlier_is_repeated_once_and_an_interrupted_repeat_resumed(card: MadeUp, tmp_path: Path) -> None:
    slow(card, "attention_v8", 0, 1, 2 * 4)  # both problems of process 1; then again the first that is repeated
    act = card.act

    def killed(step: str, name: str) -> None:
        if sum(step == "device_warm" for _, step, _ in card.did) == 4 * PAIRS:
            raise KeyboardInterrupt
        act(step, name)

    card.act = killed  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        measure.measure_studies([FILLED], processes=4)
    assert list(tables(tmp_path)["runs"]["complete"]) == [False]
    card.act = act  # type: ignore[method-assign]
    found = measured(tmp_path, FILLED, processes=4)
    assert list(found["runs"]["repeated"]) == [2] and list(found["runs"]["complete"]) == [True]
    again = found["timings"][found["timings"]["repeated"].eq(True)]
    assert sorted(again["median_us"]) == [2.0, 8.0] and set(again["process"]) == {1} and again["hdim"].nunique() == 2


def test_times_of_the_host_are_not_repeated_alone(card: MadeUp, tmp_path: Path) -> None:
    drift = itertools.count(1)
    card.us = lambda name: float(next(drift) ** 2)
    assert list(measured(tmp_path, LOG, processes=4)["runs"]["repeated"]) == [0]


@pytest.mark.parametrize(
    ("times", "stand"),
    [
        ([10.0, 10.1, 9.9, 10.0, 89.0], [10.0, 10.1, 9.9, 10.0]),
        ([10.0, 8.9, 10.1, 10.0, 10.0], [10.0, 10.1, 10.0, 10.0]),  # too fast is no better
        ([10.0, 10.1, 9.9, 10.0, 10.9], None),
        ([10.0, 12.0, 10.0, 12.0, 10.0], None),  # two speeds: the kernel's own
        ([10.0, 10.4, 9.9, 10.0, 12.0], None),  # the others do not agree
        ([10.0, 20.0], None),  # which of the two?
    ],
)
def test_process_counts_unless_all_others_agree_without_it(times: list[float], stand: list[float] | None) -> None:
    common = {"run": "1", "study": "log", "timer": "device_warm", "repeated": None}
    common |= on_gpu.row_of(("attention_v8", PROBLEMS[0]))
    rows = [{**common, "process": at, "p20_us": us, "median_us": us} for at, us in enumerate(times, 1)]
    assert list(standing(pd.DataFrame(rows))["median_us"]) == (times if stand is None else stand)
