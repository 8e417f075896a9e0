"""What V8's chapter loads, and its figures of what was searched and timed."""

from __future__ import annotations

from kernels.limits import EMULATED_TARGET, capability
from kernels.v8 import CLUSTERS_SINCE

from .. import figures
from ..evidence import Evidence
from ..evidence.origin import measured
from ..evidence.study import Study
from ..figures.style import Plot
from ..measure.studies import MAIN
from ..measure.tune import choice
from ..models import steps, targets
from ..models.targets import BEYOND, MEASURED_IN, NEEDED, home, label
from ..tables.table import Missing
from ..tables.v8 import SHAPES, needs, tuned, untimed
from . import notebook


def load(gpu: str, source: str = "recorded") -> Evidence:
    """As `notebook.load` of the studies that V8's chapters show; live the shapes are searched too. Raises: GpuError."""
    e = notebook.load(gpu, source, *NEEDED)
    if source == "live":
        from ..measure.tune import tune

        tune()
    return Evidence.load(e.slug)


def studies(e: Evidence) -> list[Study]:
    """Those that the chapter shows, as far as they are measured."""
    return [study for study in map(e.study, dict.fromkeys((*NEEDED, *MEASURED_IN))) if study]


def idea(e: Evidence) -> Plot:
    """The cluster that the card gets for the main shape; where its kernel has none, that of the emulated target."""
    target = e.target if capability(e.target) >= CLUSTERS_SINCE else EMULATED_TARGET
    return figures.v8_idea(*choice(MAIN, target), MAIN, target)


def tile(e: Evidence) -> Plot:
    """What one block does when, with the times of its parts where those were measured."""
    frame = steps.cuts(steps.shapes(e))
    return figures.v8_tile(frame[frame["problem"] == label(MAIN)], e.card, tuned(e))


@needs(SHAPES, warpgroups=True)
def cuts(e: Evidence) -> Plot | Missing:
    frame = steps.cuts(steps.shapes(e))
    if frame.empty:
        return Missing(why="Parts of the kernel were left out in a past audit of another card alone")
    return figures.v8_cuts(frame, e.card, tuned(e))


@needs("beyond")
def family(e: Evidence) -> Plot | Missing:
    """The family at every problem where V8 was timed."""
    frame = targets.family(e)
    source = measured(e, *dict.fromkeys(home(e, problem) for problem in BEYOND))
    return figures.v8_family(frame, e.card, source) if len(frame) else untimed(e)
