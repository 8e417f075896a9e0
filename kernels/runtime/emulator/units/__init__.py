"""The instructions, by what they do; each file registers the decoders of its opcodes."""

from . import mbarriers, scalar, transfers, warpgroups, warps  # noqa: F401
from .decoding import decode as decode
