"""Advice: what the rules choose, and the nearest shapes on which the three versions were timed."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from analysis import __main__ as command_line
from analysis.evidence import Evidence
from analysis.findings.fuse import outcomes
from analysis.measure.studies import FUSIONS
from analysis.models import advice, rivals
from analysis.models.advice import MEANS
from analysis.models.rivals import FULL, HYBRID, SEPARATE
from analysis.record import files
from analysis.record.files import DataError
from kernels import Problem, Unsupported
from tests.evidence.made_up import make, record

ONE = Problem("rope", 1, 4, seq_q=64, hdim=2048, rotary_dim=128)  # one tile of keys
FEW = Problem("rope", 1, 8, seq_q=1, seq_k=4096, hdim=128, rotary_dim=128)
MANY = Problem("rope", 1, 64, seq_q=64, seq_k=512, hdim=128, rotary_dim=128)
SAME, NONE = "The rules say the same.", "no rule holds"
US = {FULL: 10.0, HYBRID: 11.0, SEPARATE: 15.0}


def times(*problems: Problem, factor: float = 1.0) -> dict[tuple[str, Problem], float | None]:
    return {(version, problem): us * factor for version, us in US.items() for problem in problems}


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only card there is, and the reference."""
    monkeypatch.setattr(files, "MEASURED", tmp_path)
    monkeypatch.setattr(advice, "REFERENCE", "test-gpu")
    return make(tmp_path)


def test_the_nearest_measured_shape_comes_first_with_its_own_numbers(card: Path) -> None:
    far, near = replace(FEW, seq_k=1024), replace(FEW, seq_k=8192, heads=9, kv_heads=9)
    record(card, "map", times(FEW) | times(far, factor=2.0) | times(near, factor=3.0))
    asked = replace(FEW, seq_k=6144)
    assert advice.nearest(asked, [FEW, far, near]) == [near, FEW, far]  # 9 / 8 of the heads, 4 / 3 of the keys; 1.5; 6
    text = advice.advise(asked)
    assert "rope_attention runs rope_decode here" in text.splitlines()[-2]
    assert re.findall(r": ([\d.]+) µs, hybrid", text) == ["30.0", "10.0", "20.0"]
    assert re.findall(r"within ([\d.]+)×", text) == ["1.3", "1.5", "6"] and MEANS[FULL] in text.splitlines()[0]
    # how many times as long the others take, not the inverse
    assert len(re.findall(r"hybrid 1\.10 times as long .* separate 1\.50 times as long", text)) == 3
    masked = replace(asked, causal=True, seq_k=4096, q_offset=4095)
    assert advice.nearest(masked, [FEW, far, near])[0] == FEW


def test_a_shape_counts_where_all_three_were_timed(card: Path) -> None:
    record(card, "map", times(ONE, FEW) | {(HYBRID, FEW): None})
    e = Evidence.load(card)
    assert rivals.family_problems(e) == [ONE] and not rivals.winners(e, FEW)
    assert advice.advise(FEW).count("hybrid") == 1


@pytest.mark.parametrize(
    ("problem", "choice"),
    [
        (ONE, SAME),
        (FEW, SAME),
        (replace(MANY, seq_q=128, q_offset=384), SAME),
        (replace(MANY, seq_q=129, q_offset=383), NONE),
        (replace(FEW, heads=16), NONE),  # two heads rotate the same keys
    ],
)
def test_the_rules_of_the_chapter(card: Path, problem: Problem, choice: str) -> None:
    record(card, "map", times(ONE, FEW, MANY))
    assert choice in advice.advise(problem)


def test_advice_far_from_everything_measured_says_so(card: Path) -> None:
    record(card, "map", times(FEW))
    for factor, far in ((4, False), (5, True)):
        text = advice.advise(replace(FEW, seq_k=4096 * factor, q_offset=4096 * factor - 1))
        assert ("Nothing within a factor of 4" in text) is far


def test_the_command_advises_and_refuses(card: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(card, "log", times(ONE))
    with pytest.raises(DataError, match="make measure STUDY=map"):
        advice.advise(ONE)
    record(card, "map", times(ONE, FEW, MANY))
    assert advice.main(["--heads", "8", "--seq-q", "1", "--seq-k", "4096"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"10\.0 µs.* 1\.10 times .* 1\.50 times", said) and "Test GPU" in said
    assert command_line.main(["advise", "--hdim", "66"]) == 1
    assert capsys.readouterr().err == "advise: hdim is 66; it must be a multiple of 4\n"
    assert command_line.main(["advise", "--gpu", "abacus"]) == 1 and "there is: test-gpu" in capsys.readouterr().err
    with pytest.raises(Unsupported, match="rotary_dim is 0"):
        advice.advise(replace(ONE, rotary_dim=0))


@pytest.mark.parametrize(
    ("us", "fastest", "outcome"),
    [
        ((10, 11, 15), {FULL}, (1, 0, 0)),
        ((10, 10.2, 15), {FULL, HYBRID}, (0, 1, 0)),
        ((10.2, 10, 15), {FULL, HYBRID}, (0, 1, 0)),
        ((10, 9, 15), {HYBRID}, (0, 0, 1)),
    ],
)
def test_the_fastest_and_what_ties_with_it(card: Path, us: tuple[float, ...], fastest: set, outcome: tuple) -> None:
    record(card, "map", {(version, ONE): each for version, each in zip(FUSIONS, us)})
    e = Evidence.load(card)
    assert rivals.winners(e, ONE) == fastest and outcomes(e, lambda problem: problem == ONE) == outcome


@pytest.mark.parametrize(("seq", "how"), [(4, "rope_decode here"), (512, "rope_prompt here")])
def test_half_precision_has_its_kernel_named_and_what_was_measured_beside_it(seq: int, how: str) -> None:
    text = advice.advise(Problem("rope", 1, 8, 8, seq, 512, 64, 64, dtype="float16"), "nvidia-h100-80gb-hbm3")
    assert how in text
    assert seq == 4 or text.count("times as long") == 2 * advice.SHOWN
