"""The figures of the book: a function each, which takes the evidence of a card and returns a `Plot`."""

from .angle_error import angle_error
from .by_card import speedups_by_card
from .counters import warp_waits
from .flow import flow
from .front import fusing
from .ladders import ladder
from .loads import loads
from .online import attention_online
from .phases import phases
from .pipelines import PIPELINES, pipelines
from .pytorch import peers
from .savings import rope_savings
from .speedups import sinusoidal_fusion
from .timeline import timeline
from .v8_cluster import v8_idea, v8_tile
from .v8_measured import v8_cuts, v8_family
from .waves import wave
from .when_to_fuse import fusion_map

__all__ = [
    "PIPELINES", "angle_error", "attention_online", "flow", "fusing", "fusion_map", "ladder", "loads", "peers",
    "phases", "pipelines", "rope_savings", "sinusoidal_fusion", "speedups_by_card", "timeline", "v8_cuts", "v8_family",
    "v8_idea", "v8_tile", "warp_waits", "wave",
]  # fmt: skip
