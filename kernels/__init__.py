"""Every kernel version of the log, in log order, and what they share. `VERSIONS` maps an id to its version."""

# ruff: noqa: F401, I001 -- importing a version registers it, and the order is the log's
from .version import VERSIONS, Plan, Problem, Unsupported, Version, version

from .attention import baseline, online, online_fixed
from .sinusoidal import separate_float4, v5_float4, hybrid_v1
from .rope import separate, v1a_tables, v1c_float4, v7_hybrid
from . import peers
