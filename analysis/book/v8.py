"""The two figures of V8's chapter."""

from kernels import VERSIONS
from kernels.limits import EMULATED_TARGET, capability
from kernels.v8 import CLUSTERS_SINCE

from .. import figures
from ..evidence import Evidence
from ..evidence.origin import measured_on
from ..figures.style import Plot
from ..findings import AUDITED, committed
from ..measure.studies import MAIN
from ..models import steps


def idea(e: Evidence) -> Plot:
    """The cluster that the card gets for the main shape; where its kernel has none, that of the emulated target."""
    target = e.target if capability(e.target) >= CLUSTERS_SINCE else EMULATED_TARGET
    shape = VERSIONS["rope_v8"](MAIN, target).launches[-1].shape
    return figures.v8_idea(shape.core, shape, MAIN, target)


def tile(e: Evidence) -> Plot:
    """What one block does when, with the times of its parts, of the audited card where this one has not all of them."""
    of = e if len(steps.cuts(steps.shapes(e))) > len(steps.CUTS) else committed(AUDITED)
    searched = steps.shapes(of)
    source = measured_on(of.card, searched[["commit", "measured_at"]].to_dict("records"))
    return figures.v8_tile(steps.cuts(searched), source)
