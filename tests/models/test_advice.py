"""Advice: what the op runs, and the nearest shapes on which that was timed."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from analysis import __main__ as command_line
from analysis.evidence import Evidence
from analysis.findings.fuse import outcomes
from analysis.models import advice, rivals
from analysis.models.rivals import FULL, HYBRID, SEPARATE
from analysis.record import files
from analysis.studies import FUSIONS
from kernels import Problem, Unsupported
from tests.evidence.made_up import make, record

ONE = Problem("rope", 1, 4, seq_q=64, hdim=2048, rotary_dim=128)  # one tile of keys
MANY = Problem("rope", 1, 64, seq_q=64, seq_k=512, hdim=128, rotary_dim=128)
US = {FULL: 10.0, HYBRID: 11.0, SEPARATE: 15.0}


def times(*problems: Problem, factor: float = 1.0) -> dict[tuple[str, Problem], float | None]:
    return {(version, problem): us * factor for version, us in US.items() for problem in problems}


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only card there is, and the reference."""
    monkeypatch.setattr(files, "MEASURED", tmp_path)
    monkeypatch.setattr(advice, "REFERENCE", "test-gpu")
    return make(tmp_path)


def test_nearest_measured_shape_comes_first_with_its_own_numbers(card: Path) -> None:
    far, near = replace(MANY, seq_k=1024, q_offset=960), replace(MANY, seq_k=256, q_offset=192, heads=72, kv_heads=72)
    record(card, "map", times(MANY) | times(far, factor=2.0) | times(near, factor=3.0))
    asked = replace(MANY, seq_k=320, q_offset=256)
    assert advice.nearest(asked, [MANY, far, near]) == [near, MANY, far]  # 9 / 8 heads, 5 / 4 keys; 1.6; 3.2
    text = advice.advise(asked)
    assert text.splitlines()[:2] == ["rope_attention runs rope_v8 here, full fusion.", "The nearest on the Test GPU:"]
    assert re.findall(r": ([\d.]+) µs, hybrid", text) == ["30.0", "10.0", "20.0"]
    assert re.findall(r"within ([\d.]+)×", text) == ["1.2", "1.6", "3.2"]
    # how many times as long the others take, not the inverse
    assert len(re.findall(r"hybrid 1\.10 times as long .* separate 1\.50 times as long", text)) == 3
    masked = replace(asked, causal=True, seq_k=512, q_offset=448)
    assert advice.nearest(masked, [MANY, far, near])[0] == MANY


def test_advise_command_advises_and_refuses(card: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(card, "log", times(ONE))
    assert "It was not timed on the Test GPU." in advice.advise(ONE)
    record(card, "map", times(ONE, MANY))
    assert advice.main(["--heads", "4", "--hdim", "2048"]) == 0
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
def test_winners_are_the_fastest_and_its_ties(card: Path, us: tuple[float, ...], fastest: set, outcome: tuple) -> None:
    record(card, "map", {(version, ONE): each for version, each in zip(FUSIONS, us)} | {(FULL, MANY): 1.0})
    e = Evidence.load(card)
    assert not rivals.winners(e, MANY)  # where not all three were timed
    assert rivals.winners(e, ONE) == fastest and outcomes(e, lambda problem: problem == ONE) == outcome


@pytest.mark.parametrize(("seq", "how"), [(4, "rope_decode here"), (512, "rope_prompt here")])
def test_half_precision_has_its_kernel_named_and_what_was_measured_beside_it(seq: int, how: str) -> None:
    text = advice.advise(Problem("rope", 1, 8, 8, seq, 512, 64, 64, dtype="float16"), "nvidia-h100-80gb-hbm3")
    assert how in text
    assert seq == 4 or text.count("times as long") == 2 * advice.SHOWN
