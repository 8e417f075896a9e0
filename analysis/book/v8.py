"""What V8's chapter loads, and its figures of what was searched and timed."""

from __future__ import annotations

from kernels.limits import EMULATED_TARGET, capability
from kernels.v8 import CLUSTERS_SINCE

from .. import figures
from ..figures.style import Plot
from ..measure.studies import MAIN
from ..measure.tune import choice
from ..models import steps, targets
from ..models.targets import BEYOND, NEEDED, SHAPES, Evidence, label, measured_at, read
from ..tables.table import Missing
from ..tables.v8 import needs, untimed
from .notebook import card
from .origin import Source, measured_on


def load(gpu: str, source: str = "recorded") -> Evidence:
    """The evidence of a GPU as recorded, or of the card at hand, measured now. Raises as `notebook.card`; GpuError."""
    gpu = card(gpu, source, ",".join(NEEDED))
    if source == "live":
        from ..measure.tune import tune

        tune()
    return read(gpu)


def tuned(evidence: Evidence) -> Source:
    """Where the times of shapes and cuts are from."""
    return measured_on(evidence.card, evidence.shapes[["commit", "measured_at"]].to_dict("records"))


def idea(evidence: Evidence) -> Plot:
    """The cluster that the card gets for the main shape; where its kernel has none, that of the emulated target."""
    target = evidence.target if capability(evidence.target) >= CLUSTERS_SINCE else EMULATED_TARGET
    return figures.v8_idea(*choice(MAIN, target), MAIN, target)


def tile(evidence: Evidence) -> Plot:
    """What one block does when, with the times of its parts where those were measured."""
    frame = steps.cuts(evidence.shapes)
    return figures.v8_tile(frame[frame["problem"] == label(MAIN)], evidence.card, tuned(evidence))


@needs(SHAPES, warpgroups=True)
def cuts(evidence: Evidence) -> Plot | Missing:
    frame = steps.cuts(evidence.shapes)
    if frame.empty:
        return Missing(why="Parts of the kernel were left out in a past audit of another card alone")
    return figures.v8_cuts(frame, evidence.card, tuned(evidence))


@needs("beyond")
def family(evidence: Evidence) -> Plot | Missing:
    """The family at every problem where V8 was timed."""
    frame = targets.family(evidence)
    used = [measured.run for problem in BEYOND if (measured := measured_at(evidence, problem))]
    source = measured_on(evidence.card, used)
    return figures.v8_family(frame, evidence.card, source) if len(frame) else untimed(evidence)
