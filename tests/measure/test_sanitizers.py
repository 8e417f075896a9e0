"""A tool's count becomes a row, its silence counts only where it is known to hear, and what is recorded is declared."""

import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from analysis.errors import REFUSED, MeasureError
from analysis.evidence.current import called_today, today
from analysis.measure import sanitize
from analysis.measure.sanitize import Told, row_of
from analysis.record import records
from analysis.record.files import REFERENCE, known_gpus
from kernels import VERSIONS
from kernels.registry import OWN
from kernels.runtime.compile import entry_name

RACES = next(version.id for version in OWN if "race" in sanitize.declared(version.id))
CLEAN = next(version.id for version in OWN if not sanitize.declared(version.id))


def test_findings_of_tools_in_todays_code_are_declared() -> None:
    """Whichever assembler made the kernels: a hazard is in the code."""
    for card in known_gpus():
        rows = records(card, "sanitizers")
        found = [row for row in rows if called_today(row["source_hash"]) == today(row["version"])]
        assert not [row["version"] for row in found if not row["expected"]]
        assert card != REFERENCE or len({row["version"] for row in found}) > 90


def test_known_version_has_the_hazards_that_tools_must_find() -> None:
    assert sanitize.declared(sanitize.KNOWN) == {"race", "out_of_bounds"}
    assert not VERSIONS[sanitize.KNOWN](sanitize.problems(VERSIONS[sanitize.KNOWN])[0], "sm_75").buffers["q"].init


@pytest.mark.parametrize(
    ("name", "told", "hears", "finding", "expected"),
    [
        (CLEAN, Told(0, 0), True, "none", True),
        (CLEAN, Told(0, 3), True, "race", False),
        (RACES, Told(0, 3), True, "race", True),
        (RACES, Told(1, 3), False, "race", True),  # what is found is found
        (RACES, Told(0, 0), True, "none", True),  # the emulator sees it; a race need not show
        (CLEAN, Told(0, 0), False, "not_checked", False),
        (CLEAN, Told(1, 0), True, "not_checked", False),
        (CLEAN, Told(0, None), True, "not_checked", False),
        (CLEAN, Told(REFUSED, 0), True, "unsupported", True),
    ],
)
def test_count_becomes_a_row(name: str, told: Told, hears: bool, finding: str, expected: bool) -> None:
    row = row_of("racecheck", name, told, hears)
    assert (row["finding"], row["expected"], row["hazards"]) == (finding, expected, told.hazards)


FAKE_TOOL = """#!{python}
import sys
if "--help" in sys.argv:
    print("--tool arg --racecheck-report arg --port arg")
    sys.exit()
tool, *names = sys.argv[sys.argv.index("analysis.measure.sanitize") + 1 :]
assert sys.argv[sys.argv.index("--tool") + 1] == tool and "--padding" not in sys.argv
counts = {{"memcheck": 0, "racecheck": 128, "initcheck": 64, "synccheck": 0}}
hazards = counts[tool] if names == ["known"] else 2 if tool == "racecheck" and "{races}" in names else 0
print("========= Error: half a line", end="")
if tool == "initcheck" and "{clean}" in names:
    sys.exit(3)
kind = "RACECHECK" if tool == "racecheck" else "ERROR"
print(f"\\n========= {{kind}} SUMMARY: {{hazards}} hazards displayed ({{hazards}} errors, 0 warnings)")
"""


def test_tool_that_finds_no_planted_race_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in counts races in one version; its memcheck misses what is known, its initcheck dies once."""
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(FAKE_TOOL.format(python=sys.executable, races=RACES, clean=CLEAN))
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    made = list(sanitize.sanitize([RACES, CLEAN], tmp_path))
    found = {(row["version"], row["tool"]): row["finding"] for some in made for row in some}
    assert found == {
        (RACES, "memcheck"): "not_checked", (RACES, "racecheck"): "race", (RACES, "initcheck"): "none",
        (RACES, "synccheck"): "none", (CLEAN, "memcheck"): "not_checked", (CLEAN, "racecheck"): "none",
        (CLEAN, "initcheck"): "not_checked", (CLEAN, "synccheck"): "none",
    }  # fmt: skip


def test_sanitize_writes_nothing_where_no_tool_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitize, "toolkit", lambda program: "/bin/false")
    with pytest.raises(MeasureError, match="no tool finds what is known, and nothing is written"):
        next(sanitize.sanitize([CLEAN], tmp_path))


def test_watched_process_launches_every_problem_with_its_own_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a card: buffers and grids are those of the plan; padding is left out for memcheck alone."""
    launched: list[Any] = []
    made: list[torch.Tensor] = []

    def empty(size: int, **options: Any) -> torch.Tensor:
        made.append(torch.full((size,), 7, **options))
        return made[-1]

    def prepare(function, launch, values, maps):
        assert len(values) == len(launch.args)
        return lambda: launched.append((entry_name(function), launch.grid))

    monkeypatch.setattr(torch, "empty", empty)
    monkeypatch.setattr(sanitize, "require_gpu", lambda: torch.device("cpu"))
    monkeypatch.setattr(sanitize, "device_target", lambda: "sm_90")
    monkeypatch.setattr(sanitize, "load_ptx", lambda ptx: ptx)
    monkeypatch.setattr(sanitize, "prepare_launch", prepare)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    plans = [VERSIONS["rope_separate"](problem) for problem in sanitize.problems(VERSIONS["rope_separate"])]
    buffers = [buffer for plan in plans for buffer in plan.buffers.items()]
    assert any(buffer.padding for _, buffer in buffers)
    for tool, names, unwritten in (("memcheck", "rope_separate", ""), ("racecheck", sanitize.HEARD, "q")):
        launched.clear()
        made.clear()
        assert sanitize.run_watched(tool, names) == 0
        assert [grid for _, grid in launched] == [launch.grid for plan in plans for launch in plan.launches]
        for (name, buffer), memory in zip(buffers, made, strict=True):
            padding = memory[buffer.size :]
            assert len(padding) == (0 if tool == "memcheck" else buffer.padding) and padding.isnan().all()
            filled = buffer.init is not None or name in set("qkv") - {unwritten}
            assert bool((memory[: buffer.size] == 7).all()) != filled
    monkeypatch.setattr(sanitize, "device_target", lambda: "sm_89")
    assert sanitize.run_watched("memcheck", "rope_v8_mma") == REFUSED
