"""The figures of the book: a function each, which takes the evidence of a card and returns a `Plot`."""

from .angle_error import angle_error
from .counters import warp_waits
from .front import fusing
from .loads import loads
from .steps import pipelines, steps
from .timeline import timeline
from .v8_cluster import v8_idea, v8_tile
from .v8_measured import v8_cuts, v8_family
from .waves import wave
from .when_to_fuse import fusion_map

__all__ = [
    "angle_error", "fusing", "fusion_map", "loads", "pipelines", "steps", "timeline", "v8_cuts",
    "v8_family", "v8_idea", "v8_tile", "warp_waits", "wave",
]  # fmt: skip
