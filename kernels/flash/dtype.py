"""Element types: conversions between 16 bytes of elements and float32, and products of fragments."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba import types

from .tiles import BYTES, FLOAT, I32


@dataclass(frozen=True)
class Dtype:
    """An element type: `ptx` is its name in mma.sync and in conversions, empty for float32; sums are in float32."""

    name: str
    size: int
    ptx: str = ""

    @property
    def vector(self) -> int:
        """Elements of 16 bytes."""
        return BYTES // self.size

    @property
    def pointer(self) -> Any:
        """Half-precision elements are kept as their bits."""
        return types.CPointer(types.uint16 if self.ptx else types.float32)

    def floats(self, b: Any, registers: Sequence[Any]) -> list[Any]:
        """Raw registers, of one float32 or two halves each, as float32."""
        if not self.ptx:
            return b.as_floats(registers)
        if self.ptx == "bf16":
            halves = [(word << 16, word & 0xFFFF0000) for word in registers]
            return b.as_floats([half for pair in halves for half in pair])
        text = "{ .reg .b16 lo, hi; mov.b32 {lo, hi}, $2; cvt.f32.f16 $0, lo; cvt.f32.f16 $1, hi; }"
        kind = ir.LiteralStructType([FLOAT, FLOAT])
        pairs = [b.pure(text, "=f,=f,r", kind, word) for word in registers]
        return [b.extract_value(pair, i) for pair in pairs for i in range(2)]

    def words(self, b: Any, values: Sequence[Any]) -> list[Any]:
        """float32 rounded to elements, as raw registers."""
        if not self.ptx:
            return b.as_words(values)
        text = f"cvt.rn.{self.ptx}x2.f32 $0, $2, $1;"
        return [b.pure(text, "=r,f,f", I32, low, high) for low, high in zip(values[::2], values[1::2])]

    def mma(self, b: Any, a_: Sequence[Any], b_: Sequence[Any], c: Sequence[Any]) -> list[Any]:
        """mma.m16n8k16 with float32 accumulators; fragments as `device.asm.mma_m16n8k16_f16` has them."""
        return b.mma(f"m16n8k16.row.col.f32.{self.ptx}.{self.ptx}.f32", a_, b_, c)


DTYPES = {each.name: each for each in (Dtype("float32", 4), Dtype("float16", 2, "f16"), Dtype("bfloat16", 2, "bf16"))}
HALF = DTYPES["float16"]
