"""Launches of a decode problem, and its plan over named buffers."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from ...constants import require_raw_keys
from ...version import Buffer, Kernel, Launch
from ..call import Call, Request, flash_plan, strides_of
from ..combine import launch_combine, shapes
from ..schedule import DecodeShape
from .choose import require_decode, shape_of, splits_of
from .kernel import decode_kernel


@dataclass(frozen=True)
class Decode(Call):
    name = "decode"
    shape: DecodeShape

    @property
    def kernel(self) -> Kernel:
        return decode_kernel(self.shape)

    def splits(self, seq_k: int) -> tuple[int, int]:
        return splits_of(self.shape, self.of.shared_heads * self.tiles, seq_k, self.of.sms)

    def parts(self, splits: int) -> dict[str, tuple[int, ...]]:
        """float32 shapes of what is left to the launch that combines, if any."""
        p = self.of.problem
        return shapes(p.batch * p.heads * p.seq_q, p.hdim, splits) if splits > 1 else {}

    def workspace(self, inputs: dict[str, Buffer]) -> dict[str, Buffer]:
        parts = self.parts(self.splits(self.of.problem.seq_k)[0])
        return {name: Buffer(shape) for name, shape in parts.items()}

    def launches(self, args: tuple[Any, ...], seq_k: int) -> tuple[Launch, ...]:
        """The launch that decodes and the one that combines, which is not there if the keys are not split."""
        p, shape, splits = self.of.problem, self.shape, self.splits(seq_k)[0]
        grid = (splits, p.kv_heads * self.tiles, p.batch)
        decode = Launch(self.kernel, grid, (shape.threads,), args, shape.layout)
        if splits == 1 and args:
            return (decode,)
        return decode, launch_combine(shape.dtype, p.q_shape, splits, strides_of(p.q_shape), shape.overlap)


def decode_call(request: Request) -> Decode:
    """Raises: Unsupported for what no decode kernel takes."""
    require_decode(request)
    require_raw_keys(request.problem)
    return Decode(shape_of(request.problem.dtype, request.problem.hdim, request.rows, *request.how), request)


decode_plan = partial(flash_plan, decode_call)
