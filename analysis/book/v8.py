"""What V8's chapter loads, and its two figures."""

from __future__ import annotations

from kernels.limits import EMULATED_TARGET, capability
from kernels.v8 import CLUSTERS_SINCE

from .. import figures
from ..evidence import Evidence
from ..evidence.origin import measured_on
from ..figures.style import Plot
from ..measure.studies import MAIN
from ..measure.tune import choice
from ..models import steps
from ..models.rivals import NEEDED
from . import notebook


def load(gpu: str, source: str = "recorded") -> Evidence:
    """As `notebook.load` of the studies that V8's chapters show; live the shapes are searched too. Raises: GpuError."""
    e = notebook.load(gpu, source, *NEEDED)
    if source == "live":
        from ..measure.tune import tune

        tune()
    return Evidence.load(e.slug)


def idea(e: Evidence) -> Plot:
    """The cluster that the card gets for the main shape; where its kernel has none, that of the emulated target."""
    target = e.target if capability(e.target) >= CLUSTERS_SINCE else EMULATED_TARGET
    return figures.v8_idea(*choice(MAIN, target), MAIN, target)


def tile(e: Evidence) -> Plot:
    """What one block does when, with the times of its parts where those were measured."""
    searched = steps.shapes(e)
    source = measured_on(e.card, searched[["commit", "measured_at"]].to_dict("records"))
    return figures.v8_tile(steps.cuts(searched), e.card, source)
