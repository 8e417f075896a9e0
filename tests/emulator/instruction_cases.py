"""Single PTX instructions with operands, a reference that does not use the emulator, and the allowed error.

Each case becomes a whole kernel, so that the emulator and a GPU run the very same text. Thread i loads
`%a` (`%b`, `%c`) from element i of each operand array and stores `%out`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

THREADS = 256
COUNT = 1024
F16, F32, F64, I32, I64, U16, U32, U64 = (np.dtype(t) for t in ("f2", "f4", "f8", "i4", "i8", "u2", "u4", "u8"))
REGISTERS = {"f2": "b16", "f4": "f32", "f8": "f64", "i4": "b32", "i8": "b64", "u2": "b16", "u4": "b32", "u8": "b64"}


@dataclass(frozen=True)
class Case:
    """The instruction `name` from %a, %b, %c to %out, or what else `body` is, with %p<4>, %h<8>, %r<8>, %w<4>, %g<8>.

    `operands()` gives the arrays, whose dtypes are the registers' types. A result may differ from
    `reference(*operands)` by `relative * |reference| + absolute`; NaNs count as equal.
    """

    name: str
    operands: Callable[[], tuple[np.ndarray, ...]]
    reference: Callable[..., np.ndarray]
    output: np.dtype
    relative: float = 0.0
    absolute: float = 0.0
    body: str = ""


def kernel_text(case: Case, target: str = "sm_90") -> str:
    """The case as a complete PTX kernel `case(a, b, c, out)` with as many operand pointers as it takes."""
    arrays = case.operands()
    names = "abc"[: len(arrays)]
    params = ",\n".join(f"    .param .u64 param_{name}" for name in (*names, "out"))
    lines = []
    for name, array in zip(names, arrays, strict=True):
        lines += [*_address(name, array.dtype), f"ld.global.b{8 * array.itemsize} %{name}, [%address];"]
    plain = f"{case.name} %out, {', '.join(f'%{name}' for name in names)};"
    lines += [
        case.body or plain,
        *_address("out", case.output),
        f"st.global.b{8 * case.output.itemsize} [%address], %out;",
    ]
    registers = {name: array.dtype for name, array in zip(names, arrays, strict=True)} | {"out": case.output}
    declared = "\n    ".join(f".reg .{REGISTERS[dtype.str[1:]]} %{name};" for name, dtype in registers.items())
    body = "\n    ".join(lines)
    return f""".version 8.0
.target {target}
.address_size 64

.visible .entry case(
{params}
)
{{
    .reg .pred %p<4>;
    .reg .b16 %h<8>;
    .reg .b32 %r<8>, %thread, %block, %size;
    .reg .b64 %w<4>, %address, %offset;
    .reg .f32 %g<8>;
    {declared}
    mov.u32 %thread, %tid.x;
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mad.lo.u32 %thread, %block, %size, %thread;
    {body}
    ret;
}}
"""


def _address(name: str, dtype: np.dtype) -> list[str]:
    return [
        f"ld.param.u64 %address, [param_{name}];",
        "cvta.to.global.u64 %address, %address;",
        f"mul.wide.u32 %offset, %thread, {dtype.itemsize};",
        "add.s64 %address, %address, %offset;",
    ]


# --- operands ---------------------------------------------------------------------------------------

FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.0, np.inf, -np.inf, np.nan, 3.4028235e38, -3.4028235e38,
          2.0**-126, -(2.0**-126), 2.0**-149, -(2.0**-149), 2.0**-127, 8388607.5,
          2147483648.0, -2147483648.0, 4294967296.0, 1e-20]  # fmt: skip
INTS = [0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 255, 256, 65535, 65536,
        2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1, 2**32 - 2, 2**32 - 7]  # fmt: skip


def _fill(values: list, arity: int, random: Callable[[np.random.Generator], np.ndarray]) -> tuple[np.ndarray, ...]:
    """All pairs of the special values first, then random ones; COUNT of each."""
    rng = np.random.default_rng(arity)
    grid = np.meshgrid(*[np.arange(len(values))] * min(arity, 2), indexing="ij")
    chosen = [index.ravel()[:COUNT] for index in grid]
    if arity == 3:
        chosen.append(rng.integers(0, len(values), len(chosen[0])))
    arrays = []
    for index in chosen:
        array = random(rng)
        array[: len(index)] = np.array(values).astype(array.dtype)[index]
        arrays.append(array)
    return tuple(arrays)


def floats(arity: int) -> Callable:
    def make():
        with np.errstate(over="ignore"):
            return _fill(FLOATS, arity, lambda rng: rng.integers(0, 2**32, COUNT, dtype=np.uint32).view(F32))

    return make


def near(arity: int) -> Callable:
    """Floats of similar size."""
    return lambda: tuple(np.random.default_rng(k).uniform(-4, 4, COUNT).astype(F32) for k in range(arity))


def doubles(arity: int) -> Callable:
    return lambda: tuple(np.random.default_rng(k).uniform(-4, 4, COUNT) for k in range(arity))


def halves(arity: int) -> Callable:
    return lambda: tuple(np.random.default_rng(k).integers(0, 2**16, COUNT, dtype=np.uint16) for k in range(arity))


def spread(low: float, high: float, signed: bool = False) -> Callable:
    """Floats with exponents between two powers of two."""

    def make():
        rng = np.random.default_rng(1)
        x = np.exp2(rng.uniform(low, high, COUNT)).astype(F32)
        return (np.where(rng.random(COUNT) < 0.5, -x, x) if signed else x,)

    return make


def uniform(low: float, high: float) -> Callable:
    return lambda: (np.random.default_rng(2).uniform(low, high, COUNT).astype(F32),)


def ints(arity: int, dtype: np.dtype = U32) -> Callable:
    def make():
        values = INTS if dtype.itemsize == 4 else [*INTS, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1, 2**64 - 9, 2**40]
        limit = np.iinfo(f"u{dtype.itemsize}").max
        unsigned = np.dtype(f"u{dtype.itemsize}")
        arrays = _fill([0], arity, lambda rng: rng.integers(0, limit, COUNT, dtype=unsigned, endpoint=True))
        rng = np.random.default_rng(5)
        special = np.array(values, np.uint64).astype(unsigned)
        grid = np.stack(np.meshgrid(special, special, indexing="ij")).reshape(2, -1)[:, :COUNT]
        for position, array in enumerate(arrays):
            array[: grid.shape[1]] = grid[position] if position < 2 else rng.permutation(grid[0])
        return tuple(array.view(dtype) for array in arrays)

    return make


def shifts(dtype: np.dtype) -> Callable:
    """A value and a shift of up to 80, some far larger."""

    def make():
        (a,) = ints(1, dtype)()
        amount = np.random.default_rng(3).integers(0, 80, COUNT, dtype=np.uint32)
        amount[::50] = 2**32 - 1
        return a, amount

    return make


def fields(dtype: np.dtype, inserted: bool = False) -> Callable:
    def make():
        rng = np.random.default_rng(4)
        values = ints(2 if inserted else 1, dtype)()
        return *values, rng.integers(0, 2**14, COUNT, dtype=np.uint32)

    return make


def double_rounding() -> tuple[np.ndarray, ...]:
    """a * b + c just beside the middle of two float32, by less than float64 shows."""
    rng = np.random.default_rng(6)
    a = (1 + rng.integers(0, 2**12, COUNT) * 2.0**-12).astype(F32)
    b = np.exp2(rng.integers(-30, 30, COUNT).astype(F64)).astype(F32)
    tiny = np.where(rng.random(COUNT) < 0.5, -1, 1) * np.exp2(rng.integers(-148, -60, COUNT).astype(F64))
    # (1 + 2**-12)**2 = 1 + 2**-11 + 2**-24: the last bit is half an ulp of the float32 result
    half = np.full(COUNT, 1 + 2.0**-12, F32)
    subnormal = rng.random(COUNT) < 0.3
    first = np.where(subnormal, a * np.float32(2.0**-70), half)
    second = np.where(subnormal, b * np.float32(2.0**-75), half)
    return first.astype(F32), second.astype(F32), tiny.astype(F32)


# --- references -------------------------------------------------------------------------------------


def rounded(exact: Fraction, zero: float = 0.0) -> np.float32:
    """The float32 nearest to a fraction, ties to even."""
    if exact == 0:
        return np.float32(zero)
    with np.errstate(over="ignore", under="ignore"):
        guess = (
            np.float32(float(exact))
            if abs(exact) < Fraction(2) ** 128
            else np.float32(np.inf if exact > 0 else -np.inf)
        )
        around = {guess, np.nextafter(guess, np.float32(np.inf)), np.nextafter(guess, np.float32(-np.inf))}

    def distance(x: np.float32):
        value = Fraction(float(x)) if np.isfinite(x) else Fraction(2) ** 128 * (1 if x > 0 else -1)
        return abs(value - exact), int(x.view(np.uint32)) & 1

    best = min(around, key=distance)
    return np.copysign(best, np.float32(1 if exact > 0 else -1))


def fused(a, b, c):
    out = np.empty(len(a), F32)
    for i, (x, y, z) in enumerate(zip(a.tolist(), b.tolist(), c.tolist(), strict=True)):
        if np.isfinite([x, y, z]).all():
            plain = np.float64(x) * y + z
            out[i] = rounded(Fraction(x) * Fraction(y) + Fraction(z), float(plain) if plain == 0 else 0.0)
        else:
            out[i] = np.float64(x) * y + z
    return out


def directed(rounding: str, exact: Callable) -> Callable:
    """Round a float64 result that is exact for these operands up, down or to zero."""

    def reference(*operands):
        value = exact(*(x.astype(F64) for x in operands))
        near = value.astype(F32)
        up, down = np.nextafter(near, F32.type(np.inf)), np.nextafter(near, F32.type(-np.inf))
        smaller, larger = np.where(near > value, down, near), np.where(near < value, up, near)
        return {"rm": smaller, "rp": larger, "rz": np.where(value < 0, larger, smaller)}[rounding]

    return reference


def python(function: Callable, dtype: np.dtype) -> Callable:
    """A reference by Python's integers, wrapped to the type."""

    def reference(*operands):
        mask = (1 << 8 * dtype.itemsize) - 1
        values = [function(*row) & mask for row in zip(*(x.tolist() for x in operands), strict=True)]
        return np.array(values, f"u{dtype.itemsize}").view(dtype)

    return reference


def truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _divisors(dtype: np.dtype) -> Callable:
    def make():
        a, b = ints(2, dtype)()
        return a, np.where(b == 0, b.dtype.type(3), b)

    return make


def _zeros_ordered(pick: Callable, prefer_negative: bool, nan_wins: bool) -> Callable:
    def reference(a, b):
        out = np.where(np.isnan(a), b, np.where(np.isnan(b), a, pick(a, b)))
        zeros = (a == 0) & (b == 0)
        sign = np.signbit(a) | np.signbit(b) if prefer_negative else np.signbit(a) & np.signbit(b)
        out = np.where(zeros, np.where(sign, F32.type(-0.0), F32.type(0.0)), out)
        return np.where(np.isnan(a) | np.isnan(b), F32.type(np.nan), out) if nan_wins else out

    return reference


def _of_magnitudes(pick: Callable) -> Callable:
    """The sign is that of the product, that of a NaN counts too; a NaN gives way to a number."""

    def reference(a, b):
        negative = (a.view(U32) ^ b.view(U32)) >> np.uint32(31) == 1
        size = pick(np.abs(a), np.abs(b))
        return np.where(negative, -size, size)

    return reference


def extract(bits: int, signed: bool) -> Callable:
    def field(a: int, packed: int) -> int:
        position, length = packed & 255, packed >> 8 & 255
        a &= (1 << bits) - 1
        top = min(position + length - 1, bits - 1)
        fill = (a >> top & 1) if signed and length else 0
        return sum(((a >> position + i & 1) if i < length and position + i < bits else fill) << i for i in range(bits))

    return field


def insert(a: int, b: int, packed: int) -> int:
    position, length = packed & 255, packed >> 8 & 255
    for i in range(length):
        if position + i < 32:
            b = b & ~(1 << position + i) | (a >> i & 1) << position + i
    return b


def permuted(a: int, b: int, selector: int) -> int:
    bytes_ = (b << 32 | a).to_bytes(8, "little")
    out = 0
    for i in range(4):
        pick = selector >> 4 * i & 15
        byte = bytes_[pick & 7]
        out |= ((255 if byte & 128 else 0) if pick & 8 else byte) << 8 * i
    return out


def to_integer(dtype: np.dtype, rounding: Callable) -> Callable:
    info = np.iinfo(dtype)
    wide_nan = 1 << info.bits - 1 if info.bits == 64 else 0

    def convert(x):
        values = []
        for value in x.tolist():
            if np.isnan(value):
                values.append(wide_nan)
            elif np.isinf(value):
                values.append(info.max if value > 0 else info.min)
            else:
                values.append(min(max(int(rounding(value)), info.min), info.max))
        return np.array([v & (1 << info.bits) - 1 for v in values], f"u{dtype.itemsize}").view(dtype)

    return convert


def flushed(function: Callable) -> Callable:
    def flush(x):
        return np.where(np.abs(x) < F32.type(2.0**-126), np.copysign(F32.type(0), x), x)

    return lambda *operands: flush(function(*(flush(x) for x in operands)))


def bits32(function: Callable) -> Callable:
    return lambda *operands: np.where(function(*operands), 1, 0).astype(U32)


def half_bits(x):
    return x.astype(F16).view(U16)


def bfloat(x):
    bits = x.view(np.uint32).astype(np.uint64)
    return np.where(
        np.isnan(x), 0x7FFF, (bits + 0x7FFF + (bits >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)
    ).astype(U16)


def shuffled(source: Callable[[int], int], changed: Callable[[int], bool]) -> Callable:
    """Each warp's values moved: lane l gets source(l) where changed(l)."""

    def reference(a):
        lanes = np.array([source(lane) if changed(lane) else lane for lane in range(32)])
        return a.reshape(-1, 32)[:, lanes].ravel()

    return reference


_LOW, _ALL = np.uint64(2**32 - 1), np.uint64(2**64 - 1)


def _sizes() -> tuple[np.ndarray, np.ndarray]:
    """Bytes to copy, 0, 4 or 8, and what they are copied of."""
    return np.random.default_rng(7).choice(np.uint32([0, 4, 8]), COUNT), *ints(1, U64)()


_FLAG = " selp.u32 %out, 1, 0, %p0;"


def _cases():
    # floating point, exactly rounded
    for name, function in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply)):
        yield Case(f"{name}.rn.f32", floats(2), function, F32)
        yield Case(f"{name}.rn.ftz.f32", floats(2), flushed(function), F32)
        yield Case(f"{name}.rn.f64", doubles(2), function, F64)
        for rounding in ("rz", "rm", "rp"):
            yield Case(f"{name}.{rounding}.f32", near(2), directed(rounding, function), F32)
    yield Case("add.sat.f32", near(2), lambda a, b: np.clip(a + b, 0, 1), F32)
    yield Case("fma.rn.f32", floats(3), fused, F32)
    yield Case("fma.rn.f32", double_rounding, fused, F32)
    yield Case("fma.rn.f32", near(3), fused, F32)
    for rounding in ("rz", "rm", "rp"):
        exact = directed(rounding, lambda a, b, c: a * b + c)
        yield Case(f"fma.{rounding}.f32", near(3), exact, F32)
    yield Case("fma.rn.f64", doubles(3), _fused_double, F64)
    yield Case("div.rn.f32", floats(2), np.divide, F32)
    yield Case("div.approx.f32", near(2), np.divide, F32, relative=2.0**-21.9)
    yield Case("div.full.f32", near(2), np.divide, F32, relative=2.0**-21.9)
    yield Case("sqrt.rn.f32", floats(1), np.sqrt, F32)
    yield Case("rcp.rn.f32", floats(1), np.reciprocal, F32)
    yield Case("neg.f32", floats(1), np.negative, F32)
    yield Case("abs.f32", floats(1), np.abs, F32)
    yield Case("copysign.f32", floats(2), lambda a, b: np.copysign(b, a), F32)
    for name, pick in (("min", np.fmin), ("max", np.fmax)):
        for suffix, nan in (("", False), (".NaN", True)):
            reference = _zeros_ordered(pick, name == "min", nan)
            yield Case(f"{name}{suffix}.f32", floats(2), reference, F32)
        body = f"{name}.xorsign.abs.f32 %out, %a, %b;"
        yield Case(f"{name}.xorsign.abs.f32", floats(2), _of_magnitudes(pick), F32, body=body)
    # asynchronous copies: %address is still that of the last operand
    for name, operands, size, reference in (
        ("cp.async.8", ints(1, U64), "", lambda a: a),
        ("cp.async.8.of", _sizes, ", %a", lambda size, b: b & np.where(size == 8, _ALL, _LOW * (size // 4))),
    ):
        body = f"""
    .shared .align 8 .b8 copied[{8 * THREADS}];
    mov.u32 %r0, copied;
    mov.u32 %r1, %tid.x;
    mad.lo.u32 %r0, %r1, 8, %r0;
    st.shared.b64 [%r0], -1;
    cp.async.ca.shared.global [%r0], [%address], 8{size};
    cp.async.wait_all;
    ld.shared.b64 %out, [%r0];"""
        yield Case(name, operands, reference, U64, body=body)
    # approximations, within the error that the PTX ISA documents
    yield Case("sin.approx.f32", uniform(-6.28, 6.28), lambda a: np.sin(a.astype(F64)), F32, absolute=2.0**-20.5)
    yield Case("cos.approx.f32", uniform(-6.28, 6.28), lambda a: np.cos(a.astype(F64)), F32, absolute=2.0**-20.5)
    yield Case("ex2.approx.f32", uniform(-120, 120), lambda a: np.exp2(a.astype(F64)), F32, relative=2.0**-22)
    yield Case("ex2.approx.ftz.f32", uniform(-120, 120), lambda a: np.exp2(a.astype(F64)), F32, relative=2.0**-22)
    yield Case("ex2.approx.ftz.f32", uniform(-200, -127), np.zeros_like, F32)
    yield Case("lg2.approx.f32", spread(-100, 100), lambda a: np.log2(a.astype(F64)), F32, 2.0**-22, 2.0**-22)
    yield Case("rcp.approx.f32", spread(-120, 120, True), np.reciprocal, F32, relative=2.0**-22.9)
    yield Case("rsqrt.approx.f32", spread(-120, 120), lambda a: a.astype(F64) ** -0.5, F32, relative=2.0**-22.3)
    yield Case("sqrt.approx.f32", spread(-120, 120), np.sqrt, F32, relative=2.0**-22)
    yield Case("tanh.approx.f32", uniform(-8, 8), np.tanh, F32, relative=2.0**-10.9)
    # half precision
    for name, function in (("add", np.add), ("mul", np.multiply)):
        half = _on_halves(function)
        yield Case(f"{name}.rn.f16", halves(2), half, U16)
    yield Case("fma.rn.f16", halves(3), _on_halves(lambda a, b, c: a * b + c), U16)
    yield Case("add.rn.f16x2", lambda: (_pairs(1), _pairs(2)), _packed(np.add), U32)
    # integers
    for name, function in (
        ("add", lambda a, b: a + b),
        ("sub", lambda a, b: a - b),
        ("and", lambda a, b: a & b),
        ("or", lambda a, b: a | b),
        ("xor", lambda a, b: a ^ b),
    ):
        for dtype, suffix in ((U32, "32"), (U64, "64")):
            kind = ("s" if name in ("add", "sub") else "b") + suffix
            yield Case(f"{name}.{kind}", ints(2, dtype), python(function, dtype), dtype)
    for dtype, kind in ((U32, "u32"), (I32, "s32"), (U64, "u64"), (I64, "s64")):
        bits = 8 * dtype.itemsize
        yield Case(f"mul.lo.{kind}", ints(2, dtype), python(lambda a, b: a * b, dtype), dtype)
        yield Case(f"mul.hi.{kind}", ints(2, dtype), python(lambda a, b, n=bits: a * b >> n, dtype), dtype)
        yield Case(f"mad.lo.{kind}", ints(3, dtype), python(lambda a, b, c: a * b + c, dtype), dtype)
        yield Case(f"div.{kind}", _divisors(dtype), python(truncated, dtype), dtype)
        remainder = python(lambda a, b: a - b * truncated(a, b), dtype)
        yield Case(f"rem.{kind}", _divisors(dtype), remainder, dtype)
        yield Case(f"min.{kind}", ints(2, dtype), np.minimum, dtype)
        yield Case(f"max.{kind}", ints(2, dtype), np.maximum, dtype)
        right = python(lambda a, s: a >> s, dtype)
        yield Case(f"shr.{kind}", shifts(dtype), lambda a, s, f=right: f(a, np.minimum(s, 64)), dtype)
        yield Case(
            f"bfe.{kind}",
            fields(dtype),
            python(extract(bits, kind[0] == "s"), dtype),
            dtype,
            body=f"and.b32 %r0, %b, 255; shr.u32 %r1, %b, 8; bfe.{kind} %out, %a, %r0, %r1;",
        )
    for dtype, wide, kind in ((U32, U64, "u32"), (I32, I64, "s32")):
        yield Case(f"mul.wide.{kind}", ints(2, dtype), python(lambda a, b: a * b, wide), wide)
        body = f"cvt.{kind.replace('32', '64')}.{kind} %w0, %c; mad.wide.{kind} %out, %a, %b, %w0;"
        yield Case(f"mad.wide.{kind}", ints(3, dtype), python(lambda a, b, c: a * b + c, wide), wide, body=body)
    for dtype, bits in ((U32, 32), (U64, 64)):
        left = python(lambda a, s: a << s, dtype)
        yield Case(f"shl.b{bits}", shifts(dtype), lambda a, s, f=left: f(a, np.minimum(s, 64)), dtype)
        yield Case(f"not.b{bits}", ints(1, dtype), np.invert, dtype)
        reverse = python(lambda a, n=bits: int(f"{a:0{n}b}"[::-1], 2), dtype)
        yield Case(f"brev.b{bits}", ints(1, dtype), reverse, dtype)
        yield Case(f"clz.b{bits}", ints(1, dtype), python(lambda a, n=bits: n - a.bit_length(), U32), U32)
        yield Case(f"popc.b{bits}", ints(1, dtype), python(lambda a: a.bit_count(), U32), U32)
    yield Case("neg.s32", ints(1, I32), python(lambda a: -a, I32), I32)
    yield Case("abs.s32", ints(1, I32), python(abs, I32), I32)
    yield Case(
        "bfi.b32",
        fields(U32, True),
        python(insert, U32),
        U32,
        body="and.b32 %r0, %c, 255; shr.u32 %r1, %c, 8; bfi.b32 %out, %a, %b, %r0, %r1;",
    )
    yield Case("prmt.b32", ints(3), python(permuted, U32), U32)
    for table, function in (
        (0x96, lambda a, b, c: a ^ b ^ c),
        (0xE8, lambda a, b, c: a & b | a & c | b & c),
        (0xCA, lambda a, b, c: a & b | ~a & c),
    ):
        yield Case(f"lop3.{table:x}", ints(3), function, U32, body=f"lop3.b32 %out, %a, %b, %c, {table};")
    for mode in ("wrap", "clamp"):
        for side in "lr":
            yield Case(f"shf.{side}.{mode}.b32", _funnels, python(_funnel(side, mode), U32), U32)
    # comparison and selection
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        ordered = {
            "eq": np.equal,
            "ne": np.not_equal,
            "lt": np.less,
            "le": np.less_equal,
            "gt": np.greater,
            "ge": np.greater_equal,
        }[name]

        def both(test=ordered):
            return lambda a, b: test(a, b) & ~(np.isnan(a) | np.isnan(b))

        def either(test=ordered):
            return lambda a, b: test(a, b) | np.isnan(a) | np.isnan(b)

        yield Case(f"setp.{name}.f32", floats(2), bits32(both()), U32, body=f"setp.{name}.f32 %p0, %a, %b;{_FLAG}")
        yield Case(f"setp.{name}u.f32", floats(2), bits32(either()), U32, body=f"setp.{name}u.f32 %p0, %a, %b;{_FLAG}")
        for dtype, kind in ((I32, "s32"), (U32, "u32"), (I64, "s64"), (U64, "u64")):
            yield Case(
                f"setp.{name}.{kind}",
                ints(2, dtype),
                bits32(ordered),
                U32,
                body=f"setp.{name}.{kind} %p0, %a, %b;{_FLAG}",
            )
    for name, function in (("lo", np.less), ("ls", np.less_equal), ("hi", np.greater), ("hs", np.greater_equal)):
        yield Case(f"setp.{name}.u32", ints(2), bits32(function), U32, body=f"setp.{name}.u32 %p0, %a, %b;{_FLAG}")
    yield Case(
        "setp.num.f32",
        floats(2),
        bits32(lambda a, b: ~(np.isnan(a) | np.isnan(b))),
        U32,
        body=f"setp.num.f32 %p0, %a, %b;{_FLAG}",
    )
    yield Case(
        "setp.nan.f32",
        floats(2),
        bits32(lambda a, b: np.isnan(a) | np.isnan(b)),
        U32,
        body=f"setp.nan.f32 %p0, %a, %b;{_FLAG}",
    )
    body = "setp.lt.s32 %p0|%p1, %a, %b; selp.u32 %r0, 1, 0, %p0; selp.u32 %r1, 2, 0, %p1; or.b32 %out, %r0, %r1;"
    yield Case("setp.two", ints(2, I32), lambda a, b: np.where(a < b, 1, 2).astype(U32), U32, body=body)
    yield Case(
        "setp.and",
        ints(2, I32),
        bits32(lambda a, b: (a < b) & (b <= 5)),
        U32,
        body=f"setp.gt.s32 %p1, %b, 5; setp.lt.and.s32 %p0, %a, %b, !%p1;{_FLAG}",
    )
    yield Case("set.lt.u32.s32", ints(2, I32), lambda a, b: np.where(a < b, 2**32 - 1, 0).astype(U32), U32)
    yield Case(
        "testp.subnormal",
        floats(1),
        bits32(lambda a: (a != 0) & (np.abs(a) < 2.0**-126)),
        U32,
        body=f"testp.subnormal.f32 %p0, %a;{_FLAG}",
    )
    yield Case("slct.u32.s32", ints(3, U32), lambda a, b, c: np.where(c.view(I32) >= 0, a, b), U32)
    # moves and conversions
    yield Case(
        "mov.pack",
        ints(2),
        lambda a, b: a.astype(U64) | b.astype(U64) << np.uint64(32),
        U64,
        body="mov.b64 %out, {%a, %b};",
    )
    yield Case(
        "mov.unpack",
        ints(1, U64),
        lambda a: (a ^ a >> np.uint64(32)).astype(U32),
        U32,
        body="mov.b64 {%r0, %r1}, %a; xor.b32 %out, %r0, %r1;",
    )
    yield Case(
        "mov.b16",
        ints(1),
        lambda a: a >> np.uint32(16) | a << np.uint32(16),
        U32,
        body="mov.b32 {%h0, %h1}, %a; mov.b32 %out, {%h1, %h0};",
    )
    for mode, function in (("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil)):
        for dtype, kind in ((I32, "s32"), (U32, "u32"), (I64, "s64"), (U64, "u64")):
            yield Case(f"cvt.{mode}.{kind}.f32", floats(1), to_integer(dtype, function), dtype)
        yield Case(f"cvt.{mode}.f32.f32", floats(1), function, F32)
    for dtype, kind in ((I32, "s32"), (U32, "u32"), (I64, "s64"), (U64, "u64")):
        yield Case(f"cvt.rn.f32.{kind}", ints(1, dtype), _nearest_of_int, F32)
    yield Case("cvt.sat.f32.f32", floats(1), lambda a: np.where(a > 0, np.minimum(a, F32.type(1)), F32.type(0)), F32)
    yield Case("cvt.f64.f32", floats(1), lambda a: a.astype(F64), F64)
    yield Case("cvt.rn.f32.f64", doubles(1), lambda a: a.astype(F32), F32)
    for rounding in ("rz", "rm", "rp"):
        yield Case(f"cvt.{rounding}.f32.f64", doubles(1), directed(rounding, lambda a: a), F32)
    yield Case("cvt.s64.s32", ints(1, I32), lambda a: a.astype(I64), I64)
    yield Case("cvt.u64.u32", ints(1), lambda a: a.astype(U64), U64)
    yield Case("cvt.u32.u64", ints(1, U64), lambda a: a.astype(U32), U32)
    yield Case("cvt.s32.s8", ints(1), lambda a: a.astype(np.int8).astype(I32), I32)
    yield Case("cvt.u32.u16", halves(1), lambda a: a.astype(U32), U32)
    yield Case("cvt.sat.u8.s32", ints(1, I32), lambda a: np.clip(a, 0, 255).astype(U32), U32)
    yield Case("cvt.rn.f16.f32", near(1), lambda a: a.astype(F16).view(U16), U16)
    yield Case("cvt.f32.f16", halves(1), lambda a: a.view(F16).astype(F32), F32)
    yield Case("cvt.rn.bf16.f32", near(1), bfloat, U16)
    yield Case("cvt.f32.bf16", halves(1), lambda a: (a.astype(U32) << np.uint32(16)).view(F32), F32)
    yield Case("cvt.rn.f16x2.f32", near(2), lambda a, b: half_bits(a).astype(U32) << np.uint32(16) | half_bits(b), U32)
    yield Case("cvt.rn.bf16x2.f32", near(2), lambda a, b: bfloat(a).astype(U32) << np.uint32(16) | bfloat(b), U32)
    yield Case("cvt.rna.tf32.f32", near(1), lambda a: (a.view(U32) + np.uint32(4096)) & np.uint32(0xFFFFE000), U32)
    # warps
    full = "0xffffffff"
    yield Case(
        "shfl.bfly",
        ints(1),
        shuffled(lambda n: n ^ 5, lambda n: True),
        U32,
        body=f"shfl.sync.bfly.b32 %out, %a, 5, 31, {full};",
    )
    yield Case(
        "shfl.up",
        ints(1),
        shuffled(lambda n: n - 3, lambda n: n >= 3),
        U32,
        body=f"shfl.sync.up.b32 %out, %a, 3, 0, {full};",
    )
    yield Case(
        "shfl.down",
        ints(1),
        shuffled(lambda n: n + 3, lambda n: n < 29),
        U32,
        body=f"shfl.sync.down.b32 %out, %a, 3, 31, {full};",
    )
    yield Case(
        "shfl.idx",
        ints(1),
        shuffled(lambda n: 7, lambda n: True),
        U32,
        body=f"shfl.sync.idx.b32 %out, %a, 7, 31, {full};",
    )
    segment = (24 << 8) | 31  # segments of eight lanes
    yield Case(
        "shfl.bfly.8",
        ints(1),
        shuffled(lambda n: n ^ 4, lambda n: True),
        U32,
        body=f"shfl.sync.bfly.b32 %out, %a, 4, {segment}, {full};",
    )
    yield Case(
        "shfl.down.8",
        ints(1),
        shuffled(lambda n: n + 2, lambda n: n % 8 < 6),
        U32,
        body=f"shfl.sync.down.b32 %out, %a, 2, {segment}, {full};",
    )
    yield Case(
        "shfl.up.8",
        ints(1),
        shuffled(lambda n: n - 2, lambda n: n % 8 >= 2),
        U32,
        body=f"shfl.sync.up.b32 %out, %a, 2, {24 << 8}, {full};",
    )
    yield Case(
        "shfl.idx.8",
        ints(1),
        shuffled(lambda n: n // 8 * 8 + 3, lambda n: True),
        U32,
        body=f"shfl.sync.idx.b32 %out, %a, 3, {segment}, {full};",
    )
    yield Case("shfl.variable", ints(2), _variable_shuffle, U32, body=f"shfl.sync.idx.b32 %out, %a, %b, 31, {full};")
    yield Case(
        "shfl.predicate",
        ints(1),
        lambda a: np.tile(np.where(np.arange(32) < 29, 1, 0).astype(U32), COUNT // 32),
        U32,
        body=f"shfl.sync.down.b32 %r0|%p0, %a, 3, 31, {full};{_FLAG}",
    )
    for mode, reduce in (("all", np.all), ("any", np.any)):
        limit = 0xF0000000 if mode == "all" else 0x10000000
        body = f"setp.lt.u32 %p1, %a, {limit}; vote.sync.{mode}.pred %p0, %p1, {full};{_FLAG}"
        yield Case(f"vote.{mode}", ints(1), _vote(reduce, limit), U32, body=body)
    yield Case(
        "vote.ballot",
        ints(1, I32),
        _ballot,
        U32,
        body=f"setp.lt.s32 %p1, %a, 0; vote.sync.ballot.b32 %out, %p1, {full};",
    )
    yield Case(
        "activemask",
        ints(1, I32),
        _converse,
        U32,
        body="setp.lt.s32 %p1, %a, 0; mov.u32 %out, 0; @%p1 bra $done; activemask.b32 %out; $done:",
    )
    for name, ufunc in (("add", np.add), ("min", np.minimum), ("max", np.maximum)):
        yield Case(
            f"redux.{name}",
            ints(1),
            lambda a, f=ufunc: f.reduce(a.reshape(-1, 32), axis=1, dtype=U32).repeat(32),
            U32,
            body=f"redux.sync.{name}.u32 %out, %a, {full};",
        )
    yield Case("match.any", ints(1), _match, U32, body=f"and.b32 %r0, %a, 3; match.any.sync.b32 %out, %r0, {full};")


def _fused_double(a, b, c):
    return np.array(
        [
            float(Fraction(x) * Fraction(y) + Fraction(z))
            for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
        ]
    )


def _nearest_of_int(a):
    return np.array([rounded(Fraction(x)) for x in a.tolist()], F32)


def _on_halves(function: Callable) -> Callable:
    """Exact in float64 for these operands up to its own rounding, then one rounding to float16."""
    return lambda *operands: function(*(x.view(F16).astype(F64) for x in operands)).astype(F16).view(U16)


def _pairs(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=2 * COUNT).astype(F16).view(U32)


def _packed(function: Callable) -> Callable:
    return lambda a, b: function(a.view(F16).astype(F32), b.view(F16).astype(F32)).astype(F16).view(U32)


def _funnels():
    a, b = ints(2)()
    return a, b, np.random.default_rng(8).integers(0, 70, COUNT, dtype=np.uint32)


def _funnel(side: str, mode: str) -> Callable:
    def shift(low: int, high: int, amount: int) -> int:
        amount = min(amount, 32) if mode == "clamp" else amount & 31
        both = high << 32 | low
        return both << amount >> 32 if side == "l" else both >> amount

    return shift


def _variable_shuffle(a, b):
    return np.take_along_axis(a.reshape(-1, 32), (b.reshape(-1, 32) & 31).astype(np.int64), axis=1).ravel()


def _vote(reduce: Callable, limit: int) -> Callable:
    return lambda a: reduce(a.reshape(-1, 32) < limit, axis=1).repeat(32).astype(U32)


def _bits(flags: np.ndarray) -> np.ndarray:
    return (flags.astype(np.uint64) << np.arange(32, dtype=np.uint64)).sum(axis=-1).astype(U32)


def _ballot(a):
    return _bits((a < 0).reshape(-1, 32)).repeat(32)


def _converse(a):
    return np.where(a < 0, 0, _bits((a >= 0).reshape(-1, 32)).repeat(32)).astype(U32)


def _match(a):
    low = (a & np.uint32(3)).reshape(-1, 32)
    return _bits(low[:, :, None] == low[:, None, :]).ravel()


CASES: tuple[Case, ...] = tuple(_cases())


def mismatch(case: Case, got: np.ndarray) -> np.ndarray:
    """Indices of the results that lie outside the allowed error. Half precision results are compared as numbers."""
    with np.errstate(all="ignore"):
        want = np.asarray(case.reference(*case.operands()))
    if case.output == U16 and case.name.endswith(".f16"):
        got, want = got.view(F16), want.view(F16)
    if got.dtype.kind != "f":
        return np.flatnonzero(got != want)
    nan = np.isnan(got) & np.isnan(want)
    if case.relative == 0 and case.absolute == 0:
        want = want.astype(got.dtype)
        same = (got == want) & (np.signbit(got) == np.signbit(want))
    else:
        with np.errstate(invalid="ignore"):
            same = np.abs(got.astype(F64) - want) <= case.relative * np.abs(want) + case.absolute
    return np.flatnonzero(~(same | nan))
