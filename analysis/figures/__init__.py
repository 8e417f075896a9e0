"""The figures of the book: a function each, which takes the evidence of a card and returns a `Plot`."""

from .counters import warp_waits
from .decode import decode_added, decode_error, decode_time
from .front import answer, fusing
from .loads import loads
from .pictures import banks, blocks, sector, warps
from .steps import pipelines, steps
from .tensor_cores import tensor_cores
from .timeline import timeline
from .use import fuse_map
from .v8_cluster import v8_heads, v8_idea, v8_ladder, v8_tokens
from .waves import wave, wave_heads, wave_sms
