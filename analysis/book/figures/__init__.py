"""The figures of the book: a function each, which takes the evidence and returns a `Plot`.

Titles are computed from what is drawn.
"""

from .by_card import speedups_by_card
from .counters import emulator_agreement, warp_waits
from .distance import published_distance
from .embedding_work import fusion
from .flow import flow
from .l2_cliff import cliff
from .ladders import ladder, rope_ladder_2048
from .online import attention_online
from .phases import phases
from .pipelines import PIPELINES, pipelines
from .pytorch import peers
from .rooflines import roofline_plot, roofline_published
from .savings import rope_savings
from .speedups import sinusoidal_fusion
from .v8_cluster import v8_idea
from .v8_measured import v8_cuts, v8_embeddings, v8_family, v8_shapes
from .when_to_fuse import fusion_map, fusion_model

__all__ = [
    "PIPELINES",
    "attention_online",
    "cliff",
    "emulator_agreement",
    "flow",
    "fusion",
    "fusion_map",
    "fusion_model",
    "ladder",
    "peers",
    "phases",
    "pipelines",
    "published_distance",
    "roofline_plot",
    "roofline_published",
    "rope_ladder_2048",
    "rope_savings",
    "sinusoidal_fusion",
    "speedups_by_card",
    "v8_cuts",
    "v8_embeddings",
    "v8_family",
    "v8_idea",
    "v8_shapes",
    "warp_waits",
]
