"""The slider of waves computes what the compiler reports and analysis/models/waves.py counts.

The arithmetic of the script is JavaScript that Python reads alike: its lines are evaluated here as they stand.
"""

import json
import math
import re
from html import unescape
from types import SimpleNamespace

import pytest

from analysis.evidence import Evidence
from analysis.models import waves
from analysis.record.files import ROOT
from analysis.studies import MAIN, study
from analysis.tables.waves import slider
from kernels.limits import LIMITS
from kernels.runtime.compile import Resources, blocks_per_sm

SCRIPT = (ROOT / "book" / "_static" / "waves.js").read_text(encoding="utf-8")
FUNCTION = re.compile(r"^function (\w+)\(([^)]*)\) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
LINE = re.compile(r"const (\w+) = (.+);")
MATHEMATICS = {"ceil": math.ceil, "floor": math.floor, "min": min}


def call(name: str, *values: float) -> float:
    """The result of a function of the script's arithmetic."""
    (parameters, body) = next(rest for function, *rest in FUNCTION.findall(SCRIPT) if function == name)
    names = dict(zip(parameters.split(", "), values, strict=True))
    for line in LINE.findall(body):
        names[line[0]] = eval(line[1], {"__builtins__": {}, **MATHEMATICS}, names)
    (returned,) = re.findall(r"return (\w+);", body)
    return names[returned]


@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90", "sm_120"])
def test_slider_holds_the_blocks_that_the_compiler_reports(target: str) -> None:
    limits = LIMITS[(int(target[3:-1]), int(target[-1]))]
    launch = SimpleNamespace(block=(256,), dynamic_bytes=0)
    for registers in range(24, 97):
        used = Resources(registers=registers, spill_bytes=0, stack_bytes=0, static_shared_bytes=0)
        assert call("held", registers, 32 * limits.warps, 1) == blocks_per_sm(launch, target, used)  # type: ignore[arg-type]


def test_slider_counts_the_waves_of_every_measured_number_of_heads(e: Evidence) -> None:
    for problem in study("waves").problems:
        for name in (waves.V7, waves.SEPARATE):
            registers = waves.compiled(e, name, "registers", e.target, problem.hdim)
            at_once = call("held", registers, 2048, e.gpu["sms"])
            assert call("wavesOf", problem.heads, at_once) == waves.waves(e, name, problem)


def test_slider_begins_at_the_authors_shape_and_shows_what_was_measured(e: Evidence) -> None:
    begins = json.loads(unescape(re.search("data-begins='([^']*)'", slider(e))[1]))  # type: ignore[index]
    own, other = (call("held", each, 1536, begins["sms"]) for each in begins["registers"])
    assert (own, other) == tuple(waves.places(e, name) for name in (waves.V7, waves.SEPARATE))
    assert call("wavesOf", begins["heads"], own) == 1 and call("wavesOf", begins["heads"], other) == 2
    measured = e.speedup(waves.V7, waves.SEPARATE, "slices_heads", "device_warm@48", problem=MAIN)[MAIN]
    assert begins["measured"]["48 4"] == pytest.approx(measured.value, abs=0.005)
