"""Instructions of single threads: arithmetic, bits, comparison, selection, moves and conversions."""

from collections.abc import Callable
from functools import partial

import numpy as np

from ..ptx.source import CARRY, WIDTHS, numpy_type
from . import arithmetic as am
from .decoding import BITWISE, Instruction, Step, compose, elementwise, flushed, opcode

F32, F64, U32 = np.float32, np.float64, np.uint32


# --- floating point and integer arithmetic ----------------------------------------------------------


@opcode("add sub", "rn ftz sat")
def _add(d: Instruction) -> Step | None:
    if "sat" in d.flags and not d.is_float:
        raise d.unknown("saturation")
    ufunc = np.add if d.head == "add" else np.subtract
    return d.apply(ufunc, *d.sources(1, 2))


@opcode("mul", "rn ftz sat lo hi wide")
def _mul(d: Instruction) -> Step | None:
    if d.is_float:
        return d.apply(np.multiply, *d.sources(1, 2))
    part = d.flag("lo hi wide")
    if part == "wide":
        return elementwise(partial(np.multiply, dtype=_wide(d.type)), d.result(0, _wide(d.type)), *d.sources(1, 2))
    return d.apply(PRODUCTS[part], *d.sources(1, 2))


PRODUCTS: dict[str, Callable] = {"lo": np.multiply, "hi": am.multiply_high}


def _wide(ptx_type: str) -> np.dtype:
    narrow = numpy_type(ptx_type)
    return np.dtype(f"{narrow.kind}{2 * narrow.itemsize}")


@opcode("madc", "cc lo hi")
def _carrying(d: Instruction) -> Step | None:
    """Multiply-adds that read the carry flag (madc), write it (.cc), or both."""
    if d.type not in ("u32", "s32", "u64", "s64"):
        raise d.unknown("type")
    unsigned = np.dtype(f"u{WIDTHS[d.type]}")
    carry = d.module.operand(CARRY, "pred")
    carries_in, carries_out = d.head.endswith("c"), "cc" in d.flags
    product = PRODUCTS[d.flag("lo hi")]
    (a, b), addend, target = d.sources(1, 2), d.source(3, unsigned), d.result(0, unsigned)

    def step(row, mask):
        views = row.views
        first = product(views[a], views[b]).view(unsigned)
        total = first + views[addend]
        overflow = total < first
        if carries_in:
            with_carry = total + views[carry].astype(unsigned)
            overflow, total = overflow | (with_carry < total), with_carry
        np.copyto(views[target], total, where=mask)
        if carries_out:
            np.copyto(views[carry], overflow, where=mask)

    return step


@opcode("mad fma", "rn rm ftz sat lo hi wide cc")
def _mad(d: Instruction) -> Step | None:
    if "cc" in d.flags:
        return _carrying(d)
    if d.is_float:
        if d.type != "f32":
            raise d.unknown("type")
        return d.apply(am.fma32_down if "rm" in d.flags else am.fma32, *d.sources(1, 2, 3))
    part = d.flag("lo hi wide")
    if part == "wide":
        wide = _wide(d.type)
        slots = (*d.sources(1, 2), d.source(3, wide))
        return elementwise(lambda a, b, c: np.multiply(a, b, dtype=wide) + c, d.result(0, wide), *slots)
    product = PRODUCTS[part]
    return d.apply(lambda a, b, c: product(a, b) + c, *d.sources(1, 2, 3))


@opcode("div", "rn approx full ftz")
def _div(d: Instruction) -> Step | None:
    if not d.is_float:
        return d.apply(am.divide_int, *d.sources(1, 2))
    if not d.flag("rn approx full"):
        raise d.unknown("form")
    return d.apply(np.divide, *d.sources(1, 2))


@opcode("neg abs", "ftz")
def _neg(d: Instruction) -> Step | None:
    return d.apply(np.negative if d.head == "neg" else np.abs, d.source(1))


EXTREMA: dict[tuple[str, bool], Callable] = {
    ("min", True): am.ptx_min, ("max", True): am.ptx_max, ("min", False): np.minimum, ("max", False): np.maximum,
}  # fmt: skip


def _xorsign(function: Callable) -> Callable:
    """`function` of the magnitudes, with the product of the signs of both operands."""

    def signed(a, b):
        return np.copysign(function(np.abs(a), np.abs(b)), np.where(np.signbit(a) ^ np.signbit(b), F32(-1), F32(1)))

    return signed


@opcode("min max", "ftz xorsign abs")
def _extremum(d: Instruction) -> Step | None:
    function = EXTREMA[d.head, d.is_float]
    if d.flags & {"xorsign", "abs"}:
        if not {"xorsign", "abs"} <= d.flags or d.type != "f32":
            raise d.unknown("xorsign and abs come together, for f32")
        function = _xorsign(function)
    return d.apply(function, *d.sources(1, 2))


FUNCTIONS: dict[str, Callable] = {
    "sin": np.sin, "cos": np.cos, "ex2": np.exp2, "lg2": np.log2, "rsqrt": lambda x: 1 / np.sqrt(x),
    "rcp": np.reciprocal, "sqrt": np.sqrt, "tanh": np.tanh,
}  # fmt: skip


@opcode(" ".join(FUNCTIONS), "approx ftz rn")
def _function(d: Instruction) -> Step | None:
    if d.type not in ("f32", "f64") or (d.type == "f64" and d.head not in ("rcp", "sqrt", "rsqrt")):
        raise d.unknown("type")
    function = FUNCTIONS[d.head]
    if d.type == "f64":
        return d.apply(function, d.source(1))
    # for sqrt and reciprocal, float64 is wide enough for the double rounding to be harmless
    return d.apply(am.in_float64(function), d.source(1))


INTEGER: dict[str, Callable] = {**BITWISE, "not": np.invert, "rem": am.remainder_int, "prmt": am.permute_bytes}


@opcode(" ".join(INTEGER))
def _integer(d: Instruction) -> Step | None:
    return d.apply(INTEGER[d.head], *d.sources(*range(1, len(d.operands))))


@opcode("shl shr")
def _shift(d: Instruction) -> Step | None:
    # NumPy's shifts of unsigned values give 0 from the width on, as PTX does
    if d.head == "shl":
        kind = np.dtype(f"u{WIDTHS[d.type]}")
        return elementwise(_shift_clamped(np.left_shift), d.result(0, kind), d.source(1, kind), d.source(2, "u32"))
    function = am.shift_right_signed if d.type[0] == "s" else _shift_clamped(np.right_shift)
    return d.apply(function, d.source(1), d.source(2, "u32"))


def _shift_clamped(ufunc: np.ufunc) -> Callable:
    def shift(x, amount):
        kind = x.dtype.type
        return ufunc(x, np.minimum(amount, U32(8 * x.dtype.itemsize)).astype(kind))

    return shift


@opcode("shf", "l r wrap clamp")
def _shf(d: Instruction) -> Step | None:
    return d.apply(am.funnel("l" in d.flags, "clamp" in d.flags), *d.sources(1, 2, 3))


@opcode("bfi")
def _bfi(d: Instruction) -> Step | None:
    return d.apply(am.insert_bits, d.source(1), d.source(2), d.source(3, "u32"), d.source(4, "u32"))


@opcode("clz popc")
def _count(d: Instruction) -> Step | None:
    return elementwise(am.leading_zeros if d.head == "clz" else am.count_bits, d.result(0, "u32"), d.source(1))


# --- comparison and selection -----------------------------------------------------------------------


def _unordered(test: Callable) -> Callable:
    return lambda a, b: ~test(a, b)


COMPARISONS: dict[str, Callable] = {
    "eq": np.equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal, "neu": np.not_equal,
    "ltu": _unordered(np.greater_equal), "leu": _unordered(np.greater),
    "gtu": _unordered(np.less_equal), "geu": _unordered(np.less),
    "equ": lambda a, b: (a == b) | np.isnan(a) | np.isnan(b),
    "num": lambda a, b: ~(np.isnan(a) | np.isnan(b)), "nan": lambda a, b: np.isnan(a) | np.isnan(b),
}  # fmt: skip


def _comparison(d: Instruction) -> Callable:
    name = d.flag("ne " + " ".join(COMPARISONS))
    if name == "ne":
        test = (lambda a, b: (a != b) & ~np.isnan(a) & ~np.isnan(b)) if d.is_float else np.not_equal
    else:
        test = COMPARISONS[name]
    return flushed(test) if "ftz" in d.flags and d.type == "f32" else test


@opcode("setp", "ne and or xor ftz " + " ".join(COMPARISONS))
def _setp(d: Instruction) -> Step | None:
    test = _comparison(d)
    first, _, second = d.operands[0].partition("|")
    outputs = [d.module.result(name.strip(), "pred") for name in (first, second) if name]
    a, b = d.sources(1, 2)
    combine = BITWISE.get(d.flag("and or xor"))
    if len(outputs) == 1 and combine is None:
        return elementwise(test, outputs[0], a, b)
    third, negated = d.predicate(d.operands[3]) if combine else (-1, False)

    def step(row, mask):
        views = row.views
        true = test(views[a], views[b])
        results = [true, ~true]
        if combine:
            other = ~views[third] if negated else views[third]
            results = [combine(result, other) for result in results]
        for output, result in zip(outputs, results, strict=False):
            np.copyto(views[output], result, where=mask)

    return step


@opcode("selp")
def _selp(d: Instruction) -> Step | None:
    slot, negated = d.predicate(d.operands[3])
    a, b = d.sources(1, 2)
    if negated:
        a, b = b, a
    return elementwise(lambda p, x, y: np.where(p, x, y), d.result(), slot, a, b)


# --- moves and conversions --------------------------------------------------------------------------


@opcode("mov")
def _mov(d: Instruction) -> Step | None:
    bits = np.dtype(bool) if d.type == "pred" else np.dtype(f"u{WIDTHS[d.type]}")
    if d.operands[0].startswith("{"):
        names = d.vector(0)
        small = np.dtype(f"u{bits.itemsize // len(names)}")
        source, targets = d.source(1, bits), [d.module.result(name, small) for name in names]

        def unpack(row, mask):
            value = np.ascontiguousarray(row.lanes(source)).view(small).reshape(-1, len(targets))
            for position, target in enumerate(targets):
                np.copyto(row.views[target], value[:, position], where=mask)

        return unpack
    target = d.result(0, bits)
    if d.operands[1].startswith("{"):
        names = d.vector(1)
        small = np.dtype(f"u{bits.itemsize // len(names)}")
        parts = [d.module.operand(name, small) for name in names]

        def pack(row, mask):
            value = np.stack([row.lanes(part) for part in parts], axis=1)
            np.copyto(row.views[target], value.view(bits).reshape(-1), where=mask)

        return pack
    return elementwise(np.asarray, target, d.source(1, bits))


@opcode("cvta", "to global")
def _cvta(d: Instruction) -> Step | None:
    return elementwise(np.asarray, d.result(), d.source(1))


@opcode("cvt", "rn rni rzi rmi rpi sat ftz")
def _cvt(d: Instruction) -> Step | None:
    to = d.types[0]
    source_type = d.types[-1] if len(d.types) > 1 else "f32"
    if to in ("f16x2", "bf16x2"):
        if source_type != "f32" or d.flags - {"rn"}:
            raise d.unknown("packed conversion")
        half = (lambda x: np.asarray(x).astype(np.float16).view(np.uint16)) if to == "f16x2" else am.bfloat16_bits

        def packed(high, low):
            return (half(high).astype(U32) << U32(16)) | half(low)

        return elementwise(packed, d.result(0, "b32"), d.source(1, "f32"), d.source(2, "f32"))
    function = _conversion(d, to, source_type)
    if source_type == "f32" and "ftz" in d.flags:
        function = compose(function, am.flush)
    if "sat" in d.flags:
        function = compose(am.saturate, function)
    if to == "f32" and "ftz" in d.flags:
        function = compose(am.flush, function)
    return elementwise(function, d.result(0, numpy_type(to)), d.module.operand(d.operands[1], numpy_type(source_type)))


def _conversion(d: Instruction, to: str, source: str) -> Callable:
    kind = numpy_type(to)
    floats = ("f16", "f32", "f64")
    if {to, source} & {"bf16", "tf32"} or ("sat" in d.flags and to not in floats):
        raise d.unknown("conversion")
    integral = d.flag("rni rzi rmi rpi")
    if source in floats:
        if to not in floats:
            if not integral:
                raise d.unknown("rounding")
            return lambda x: am.float_to_int(x, integral, kind)
        if integral:
            return lambda x: am.INTEGRAL[integral](x).astype(kind)
    elif to == "f16":
        return lambda x: np.asarray(x).astype(F64).astype(np.float16)
    return lambda x: x.astype(kind)
