"""The command `gpu`: its checks before measuring need no GPU, and every part runs even if another fails."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analysis import __main__ as command_line
from analysis.errors import REFUSED
from analysis.measure import gpu, preflight
from analysis.measure.preflight import OK, STOPS, WARNING, Line, Machine, judge
from analysis.record.files import ROOT
from analysis.studies import STUDIES

FINE = Machine("Made-up card", "sm_90", "999.1", driver_cuda=(13, 1), torch_cuda="13.0", processes=())


def line(topic: str, machine: Machine) -> Line:
    [found] = [each for each in judge(machine, list(STUDIES)) if each.topic == topic]
    return found


OLD = {"driver_cuda": (12, 4), "torch_sees_it": False}
CHANGES = [
    ({"target": "sm_75"}, "GPU", OK, "capability 7.5; the core of V8 is portable"),
    ({"target": "sm_70"}, "GPU", STOPS, "Made-up card has compute capability 7.0; 7.5 or later is needed"),
    ({"driver_cuda": (13, 0)}, "driver", OK, "999.1 runs CUDA up to 13.0, torch is of CUDA 13.0"),
    (OLD, "driver", STOPS, "driver 580.65.06 or later is needed, or packages for CUDA 12: make gpu"),
    ({**OLD, "driver": None}, "driver", STOPS, "of unknown version runs CUDA up to 12.4"),
    ({"torch_sees_it": False}, "driver", STOPS, "torch sees no GPU: is it a CPU build of torch?"),
    ({"processes": ("12 python x.py", "40")}, "other processes", WARNING, "12 python x.py, 40 on this GPU"),
    ({"processes": None}, "other processes", WARNING, "they cannot be read"),
]


@pytest.mark.parametrize(("changes", "topic", "state", "says"), CHANGES)
def test_every_line_follows_from_what_the_machine_answers(changes: dict, topic: str, state: str, says: str) -> None:
    found = line(topic, replace(FINE, **changes))
    assert found.state == state and says in found.text


def test_own_ending_processes_leave_the_card_and_others_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as own:

        def listed() -> Iterator[list[int]]:
            yield [own.pid, 1]
            own.communicate(b"\n")
            yield [own.pid, 1]  # it has just ended: a card lists it a moment longer
            yield [1]

        lists = listed()

        def ask(*_: object, card: str) -> list[SimpleNamespace]:
            return [SimpleNamespace(pid=pid) for pid in next(lists)]

        monkeypatch.setattr(preflight.machine, "ask", ask)
        [found] = preflight._running("GPU-0")
    assert found.startswith("1 ") and len(found) > 2


# ---------------------------------------------------------------- the parts

PART = """#!/bin/sh
echo "$@" >> {calls}
case "$3" in
  {failing}) echo working; printf '\\r 50%%'; echo; echo "why {failing} failed" >&2; exit {code};;
esac
echo fine
"""


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Play the command with parts of which one fails, and return the calls."""

    def played(failing: str, code: int, *arguments: str, exits: int = 0) -> list[str]:
        calls, script = tmp_path / "calls", tmp_path / "python"
        calls.unlink(missing_ok=True)
        script.write_text(PART.format(calls=calls, failing=failing, code=code))
        script.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(script))
        monkeypatch.setattr(preflight, "passes", lambda studies: True)
        monkeypatch.setattr(gpu, "answer", lambda work: None)
        monkeypatch.setattr(gpu.cards, "folder_of", lambda card, named: Path(named or "made-up-card"))
        assert gpu.main(list(arguments)) == exits
        return calls.read_text().splitlines()

    return played


def test_every_part_has_its_turn_in_the_folder_of_the_card(play: Callable[..., list[str]]) -> None:
    calls = play("none", 0)
    assert [call.split()[2] for call in calls] == list(gpu.PARTS)
    assert calls[0] == "-m analysis measure --gpu made-up-card --checked --study all"
    assert all("--gpu made-up-card" in call for call in calls)
    calls = play("none", 0, "--gpu", "lab", "--study", "log")
    assert calls[0] == "-m analysis measure --gpu lab --checked --study log"
    assert calls[-1] == "-m analysis build --gpu lab"


@pytest.mark.parametrize(
    ("part", "code", "state", "exits"),
    [("counters", REFUSED, "refused", 0), ("sanitize", 1, "failed", 0), ("measure", 1, "failed", 1)],
)
def test_failed_part_ends_no_other_and_the_summary_says_why(
    play: Callable[..., list[str]], capsys: pytest.CaptureFixture[str], part: str, code: int, state: str, exits: int
) -> None:
    assert len(play(part, code, exits=exits)) == len(gpu.PARTS)
    *_, total = lines = capsys.readouterr().out.splitlines()
    summary = lines[-1 - len(gpu.PARTS) : -1]
    assert total == "[gpu] all together 0.0 min"
    assert [row.split()[1:3] for row in summary] == [[p, state if p == part else "done"] for p in gpu.PARTS]
    assert summary[gpu.PARTS.index(part)].endswith(f"0 s  why {part} failed")


LEAVING = """#!{python}
import signal, sys, time
def leave(*_):
    time.sleep(1)
    open({left!r}, "w").close()
    print("interrupted; everything finished is kept", flush=True)
    sys.exit(130)
signal.signal(signal.SIGINT, leave)
print("measuring", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("of_terminal", [True, pytest.param(False, marks=pytest.mark.deep)])
def test_interrupted_command_waits_for_its_part(tmp_path: Path, of_terminal: bool) -> None:
    left, script = tmp_path / "left", tmp_path / "python"
    script.write_text(LEAVING.format(python=sys.executable, left=str(left)))
    script.chmod(0o755)
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "  # a background job ignores it
        "from analysis.measure import gpu, preflight; preflight.LEAVES_IN = 0.5; "
        f"sys.executable = {str(script)!r}; gpu.run_part('measure', [])"
    )
    piped: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, **piped) as process:
        assert process.stdout and b"[gpu]" in process.stdout.readline() + process.stdout.readline()
        assert process.stdout.readline() == b"measuring\n"
        (os.killpg if of_terminal else os.kill)(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=30)
    assert process.returncode and (left.exists() or not of_terminal)
    if of_terminal:
        assert said == b"interrupted; everything finished is kept\n"
    for _ in range(50):
        if left.exists():
            break
        time.sleep(0.1)
    assert left.exists(), "the part goes on"


def test_machine_that_stops_measuring_runs_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "gather", Machine)
    monkeypatch.setattr(gpu, "run_all", lambda *_: pytest.fail("it ran"))
    assert gpu.main([]) == 1 == gpu.main(["--check"])
    monkeypatch.setattr(preflight, "gather", lambda: FINE)
    assert gpu.main(["--check"]) == 0


def test_command_without_its_package_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a node whose own packages are used, which are not the book's."""
    monkeypatch.setitem(sys.modules, "nbformat", None)
    monkeypatch.delitem(sys.modules, "analysis.book.build", raising=False)
    assert command_line.main(["build"]) == REFUSED
    said = capsys.readouterr().err
    assert said == "build: the package nbformat is not installed; make environment installs it\n"
