"""Single PTX instructions with operands, a reference that does not use the emulator, and the allowed error."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from operator import add, and_, mul, or_, sub, xor

import numpy as np

THREADS = 256
COUNT = 1024
F16, F32, F64, I32, I64, U16, U32, U64 = (np.dtype(t) for t in ("f2", "f4", "f8", "i4", "i8", "u2", "u4", "u8"))
REGISTERS = {"f2": "b16", "f4": "f32", "f8": "f64", "i4": "b32", "i8": "b64", "u2": "b16", "u4": "b32", "u8": "b64"}
INTEGERS = {"u32": U32, "s32": I32, "u64": U64, "s64": I64}


@dataclass(frozen=True)
class Case:
    """The instruction `name` from %a, %b, %c to %out, or what else `body` is, with registers of `kernel`, of which
    %w0 is free.

    The dtypes of the operands are the registers' types; thread i has element i of each. A result may differ from
    `reference(*operands)` by `relative * |reference| + absolute`; NaNs count as equal.
    """

    name: str
    operands: tuple[np.ndarray, ...]
    reference: Callable[..., np.ndarray]
    output: np.dtype
    relative: float = 0.0
    absolute: float = 0.0
    body: str = ""


def kernel(body: str, params: str = "out", shared: int = 0) -> str:
    """A kernel with `params` pointers in %w0, %w1, ... and the thread index in %t."""
    names = params.split()
    declared = ", ".join(f".param .u64 p_{name}" for name in names)
    loads = "\n".join(f"ld.param.u64 %w{i}, [p_{name}];" for i, name in enumerate(names))
    static = f".shared .align 16 .b8 buffer[{shared}];" if shared else ""
    return f"""
.visible .entry test({declared}) {{
  .reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<40>, %t; .reg .b64 %w<16>; .reg .f32 %f<40>;
  {static}
  mov.u32 %t, %tid.x;
  {loads}
  {body}
  ret;
}}"""


def kernel_text(case: Case) -> str:
    """The case as a complete PTX kernel of a, b, c and out, with as many operand pointers as it takes."""
    types = dict(zip("abc", (x.dtype for x in case.operands))) | {"out": case.output}
    *names, _ = types
    address = {
        name: f"mul.wide.u32 %offset, %thread, {dtype.itemsize}; add.s64 %address, %w{place}, %offset;"
        for place, (name, dtype) in enumerate(types.items())
    }
    loads = "\n".join(f"{address[x]} ld.global.b{8 * types[x].itemsize} %{x}, [%address];" for x in names)
    body = f"""{" ".join(f".reg .{REGISTERS[dtype.str[1:]]} %{name};" for name, dtype in types.items())}
    .reg .b32 %thread, %block; .reg .b64 %address, %offset;
    mov.u32 %block, %ctaid.x; mad.lo.u32 %thread, %block, {THREADS}, %t;
    {loads}
    {case.body or f"{case.name} %out, {', '.join(f'%{name}' for name in names)};"}
    {address["out"]} st.global.b{8 * case.output.itemsize} [%address], %out;"""
    return kernel(body, " ".join(types))


# --- operands ---------------------------------------------------------------------------------------

FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.0, np.inf, -np.inf, np.nan, 3.4028235e38, -3.4028235e38,
          2.0**-126, -(2.0**-126), 2.0**-149, -(2.0**-149), 2.0**-127, 8388607.5,
          2147483648.0, -2147483648.0, 4294967296.0, 1e-20]  # fmt: skip
INTS = [0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 255, 256, 65535, 65536,
        2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1, 2**32 - 2, 2**32 - 7]  # fmt: skip
LONGS = [*INTS, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1, 2**64 - 9, 2**40]
Operands = tuple[np.ndarray, ...]


def dice(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def mixed(special: np.ndarray, arity: int) -> Operands:
    """All pairs of the special values first, then random bits; COUNT of each."""
    bits, rng = np.dtype(f"u{special.itemsize}"), dice(arity)
    pairs = np.stack(np.meshgrid(special, special, indexing="ij")).reshape(2, -1)[:, :COUNT]
    arrays = rng.integers(0, np.iinfo(bits).max, (arity, COUNT), bits, endpoint=True).view(special.dtype)
    for array, values in zip(arrays, (*pairs, rng.permutation(pairs[0]))):
        array[: len(values)] = values
    return tuple(arrays)


def floats(arity: int) -> Operands:
    return mixed(np.array(FLOATS, F32), arity)


def ints(arity: int, dtype: np.dtype = U32) -> Operands:
    values = np.array(INTS if dtype.itemsize == 4 else LONGS, U64)
    return mixed(values.astype(f"u{dtype.itemsize}").view(dtype), arity)


def near(arity: int, dtype: np.dtype = F32) -> Operands:
    """Numbers of similar size."""
    return tuple(dice(k).uniform(-4, 4, COUNT).astype(dtype) for k in range(arity))


def halves(arity: int) -> Operands:
    return tuple(dice(k).integers(0, 2**16, COUNT, U16) for k in range(arity))


def spread(low: float, high: float, signs: tuple[int, ...] = (1,)) -> Operands:
    """Floats with exponents between two powers of two."""
    return (np.exp2(dice(1).uniform(low, high, COUNT)).astype(F32) * dice(2).choice(signs, COUNT).astype(F32),)


def uniform(low: float, high: float) -> Operands:
    return (dice(2).uniform(low, high, COUNT).astype(F32),)


def shifts(dtype: np.dtype) -> Operands:
    """A value and a shift of up to 80, some far larger."""
    amount = dice(3).integers(0, 80, COUNT, U32)
    amount[::50] = 2**32 - 1
    return *ints(1, dtype), amount


def divisions(dtype: np.dtype) -> Operands:
    a, b = ints(2, dtype)
    return a, np.where(b == 0, dtype.type(3), b)


def double_rounding() -> Operands:
    """a * b + c just beside the middle of two float32, by less than float64 shows."""
    rng = dice(6)
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
    sign = np.float32(1 if exact > 0 else -1)
    with np.errstate(over="ignore", under="ignore"):
        guess = np.float32(float(exact)) if abs(exact) < Fraction(2) ** 128 else sign * np.float32(np.inf)
        around = {guess, np.nextafter(guess, np.float32(np.inf)), np.nextafter(guess, np.float32(-np.inf))}

    def distance(x: np.float32):
        value = Fraction(float(x)) if np.isfinite(x) else Fraction(2) ** 128 * (1 if x > 0 else -1)
        return abs(value - exact), int(x.view(U32)) & 1

    return np.copysign(min(around, key=distance), sign)


def fused(a, b, c):
    out = np.empty(len(a), F32)
    for i, (x, y, z) in enumerate(zip(a.tolist(), b.tolist(), c.tolist(), strict=True)):
        out[i] = plain = np.float64(x) * y + z
        if np.isfinite([x, y, z]).all():
            out[i] = rounded(Fraction(x) * Fraction(y) + Fraction(z), float(plain) if plain == 0 else 0.0)
    return out


def fused_down(*operands):
    """Of operands for which float64 is exact."""
    a, b, c = (x.astype(F64) for x in operands)
    exact = a * b + c
    near = exact.astype(F32)
    return np.where(near > exact, np.nextafter(near, F32.type(-np.inf)), near)


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


def zeros_ordered(pick: Callable) -> Callable:
    def reference(a, b):
        out = np.where(np.isnan(a), b, np.where(np.isnan(b), a, pick(a, b)))
        signs = np.signbit(a), np.signbit(b)
        negative = signs[0] | signs[1] if pick is np.fmin else signs[0] & signs[1]
        return np.where((a == 0) & (b == 0), np.where(negative, F32.type(-0.0), F32.type(0.0)), out)

    return reference


def of_magnitudes(pick: Callable) -> Callable:
    """The sign is that of the product, that of a NaN counts too; a NaN gives way to a number."""

    def reference(a, b):
        size = pick(np.abs(a), np.abs(b))
        return np.where((a.view(U32) ^ b.view(U32)) >> np.uint32(31) == 1, -size, size)

    return reference


def insert(a: int, b: int, packed: int) -> int:
    position, length = packed & 255, packed >> 8 & 255
    for i in range(min(length, max(32 - position, 0))):
        b = b & ~(1 << position + i) | (a >> i & 1) << position + i
    return b


def permuted(a: int, b: int, selector: int) -> int:
    given, out = (b << 32 | a).to_bytes(8, "little"), 0
    for i in range(4):
        pick = selector >> 4 * i & 15
        byte = given[pick & 7]
        out |= ((255 if byte & 128 else 0) if pick & 8 else byte) << 8 * i
    return out


def funnel(side: str, mode: str) -> Callable:
    def shift(low: int, high: int, amount: int) -> int:
        amount = min(amount, 32) if mode == "clamp" else amount & 31
        both = high << 32 | low
        return both << amount >> 32 if side == "l" else both >> amount

    return shift


def to_integer(dtype: np.dtype, rounding: Callable) -> Callable:
    info = np.iinfo(dtype)
    of_nan = 1 << info.bits - 1 if info.bits == 64 else 0

    def whole(x: float) -> int:
        if np.isfinite(x):
            return min(max(int(rounding(x)), info.min), info.max)
        return of_nan if np.isnan(x) else info.max if x > 0 else info.min

    return python(whole, dtype)


def flushed(function: Callable) -> Callable:
    def flush(x):
        return np.where(np.abs(x) < F32.type(2.0**-126), np.copysign(F32.type(0), x), x)

    return lambda *operands: flush(function(*(flush(x) for x in operands)))


def half_bits(x):
    return x.astype(F16).view(U16)


def bfloat(x):
    bits = x.view(U32).astype(U64)
    nearest = (bits + 0x7FFF + (bits >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)
    return np.where(np.isnan(x), 0x7FFF, nearest).astype(U16)


def in_warps(function: Callable) -> Callable:
    """Of the values of each warp, `[warps, 32]`, what every lane of it gets, or the one value of all."""
    return lambda *operands: np.broadcast_to(
        function(*(x.reshape(-1, 32) for x in operands)), (COUNT // 32, 32)
    ).ravel().astype(U32)  # fmt: skip


def shuffled(source: Callable[[int], int], changed: Callable[[int], bool] = lambda lane: True) -> Callable:
    """Each warp's values moved: lane l gets source(l) where changed(l)."""
    lanes = [source(lane) if changed(lane) else lane for lane in range(32)]
    return in_warps(lambda a: a[:, lanes])


def bits(flags: np.ndarray) -> np.ndarray:
    """A word of 32 flags, bit 0 first, in a last dim of 1."""
    return (flags.astype(U64) << np.arange(32, dtype=U64)).sum(-1, keepdims=True)


# --- the cases --------------------------------------------------------------------------------------

FLAG = " selp.u32 %out, 1, 0, %p0;"
ALL = "0xffffffff"
EIGHTS = 24 << 8  # of a shuffle: segments of eight lanes
COPY = f""".shared .align 8 .b8 copied[{8 * THREADS}]; mov.u32 %r0, copied; mov.u32 %r1, %tid.x;
    mad.lo.u32 %r0, %r1, 8, %r0; st.shared.b64 [%r0], -1; cp.async.ca.shared.global [%r0], [%address], 8{{size}};
    cp.async.wait_all; ld.shared.b64 %out, [%r0];"""  # %address is still that of the last operand


def sets(name: str, operands: Operands, test: Callable, body: str = "") -> Case:
    """An instruction that sets a predicate."""
    body = body or f"{name} %p0, {', '.join(f'%{x}' for x in 'abc'[: len(operands)])};"
    return Case(name, operands, lambda *given: test(*given).astype(U32), U32, body=body + FLAG)


def arithmetic() -> list[Case]:
    """Floating point, exactly rounded."""
    three = [("add", np.add), ("sub", np.subtract), ("mul", np.multiply)]
    return [
        *(Case(f"{name}.rn.f32", floats(2), f, F32) for name, f in three),
        *(Case(f"{name}.rn.ftz.f32", floats(2), flushed(f), F32) for name, f in three),
        *(Case(f"{name}.rn.f64", near(2, F64), f, F64) for name, f in three),
        Case("add.sat.f32", near(2), lambda a, b: np.clip(a + b, 0, 1), F32),
        *(Case("fma.rn.f32", given, fused, F32) for given in (floats(3), double_rounding(), near(3))),
        Case("fma.rm.f32", near(3), fused_down, F32),
        Case("div.rn.f32", floats(2), np.divide, F32),
        Case("sqrt.rn.f32", floats(1), np.sqrt, F32),
        Case("rcp.rn.f32", floats(1), np.reciprocal, F32),
        Case("neg.f32", floats(1), np.negative, F32),
        Case("abs.f32", floats(1), np.abs, F32),
        Case("min.f32", floats(2), zeros_ordered(np.fmin), F32),
        Case("max.f32", floats(2), zeros_ordered(np.fmax), F32),
        *(Case(f"{name}.xorsign.abs.f32", floats(2), of_magnitudes(pick), F32)
          for name, pick in (("min", np.fmin), ("max", np.fmax))),
    ]  # fmt: skip


def approximations() -> list[Case]:
    """Within the error that the PTX ISA documents."""
    table = [
        ("div.approx.f32", near(2), np.divide, 2.0**-21.9, 0), ("div.full.f32", near(2), np.divide, 2.0**-21.9, 0),
        ("sin.approx.f32", uniform(-6.28, 6.28), np.sin, 0, 2.0**-20.5),
        ("cos.approx.f32", uniform(-6.28, 6.28), np.cos, 0, 2.0**-20.5),
        ("ex2.approx.f32", uniform(-120, 120), np.exp2, 2.0**-22, 0),
        ("ex2.approx.ftz.f32", uniform(-120, 120), np.exp2, 2.0**-22, 0),
        ("ex2.approx.ftz.f32", uniform(-200, -127), np.zeros_like, 0, 0),
        ("lg2.approx.f32", spread(-100, 100), np.log2, 2.0**-22, 2.0**-22),
        ("rcp.approx.f32", spread(-120, 120, (-1, 1)), np.reciprocal, 2.0**-22.9, 0),
        ("rsqrt.approx.f32", spread(-120, 120), lambda a: a**-0.5, 2.0**-22.3, 0),
        ("sqrt.approx.f32", spread(-120, 120), np.sqrt, 2.0**-22, 0),
        ("tanh.approx.f32", uniform(-8, 8), np.tanh, 2.0**-10.9, 0),
    ]  # fmt: skip

    def exact(function: Callable) -> Callable:
        return lambda *given: function(*(x.astype(F64) for x in given))

    return [Case(name, given, exact(f), F32, *allowed) for name, given, f, *allowed in table]


def integers() -> list[Case]:
    def shifted(by: Callable, dtype: np.dtype) -> Callable:
        return lambda a, s: python(by, dtype)(a, np.minimum(s, 64))

    kinds, made = INTEGERS.items(), []
    for kind, t in kinds:
        size = 8 * t.itemsize
        made += [
            Case(f"mul.lo.{kind}", ints(2, t), python(mul, t), t),
            Case(f"mul.hi.{kind}", ints(2, t), python(lambda a, b, n=size: a * b >> n, t), t),
            Case(f"mad.lo.{kind}", ints(3, t), python(lambda a, b, c: a * b + c, t), t),
            Case(f"div.{kind}", divisions(t), python(truncated, t), t),
            Case(f"rem.{kind}", divisions(t), python(lambda a, b: a - b * truncated(a, b), t), t),
            Case(f"min.{kind}", ints(2, t), np.minimum, t),
            Case(f"max.{kind}", ints(2, t), np.maximum, t),
            Case(f"shr.{kind}", shifts(t), shifted(lambda a, s: a >> s, t), t),
        ]
    for kind, t, wide in (("u32", U32, U64), ("s32", I32, I64)):
        body = f"cvt.{kind[0]}64.{kind} %w0, %c; mad.wide.{kind} %out, %a, %b, %w0;"
        made.append(Case(f"mul.wide.{kind}", ints(2, t), python(mul, wide), wide))
        made.append(Case(f"mad.wide.{kind}", ints(3, t), python(lambda a, b, c: a * b + c, wide), wide, body=body))
    for t, size in ((U32, 32), (U64, 64)):
        two = {"add.s": add, "sub.s": sub, "and.b": and_, "or.b": or_, "xor.b": xor}
        made += [
            *(Case(f"{name}{size}", ints(2, t), python(f, t), t) for name, f in two.items()),
            Case(f"shl.b{size}", shifts(t), shifted(lambda a, s: a << s, t), t),
            Case(f"not.b{size}", ints(1, t), np.invert, t),
            Case(f"clz.b{size}", ints(1, t), python(lambda a, n=size: n - a.bit_length(), U32), U32),
            Case(f"popc.b{size}", ints(1, t), python(int.bit_count, U32), U32),
        ]
    unpack = "and.b32 %r0, %c, 255; shr.u32 %r1, %c, 8; bfi.b32 %out, %a, %b, %r0, %r1;"
    funnels = *ints(2), dice(8).integers(0, 70, COUNT, U32)
    return [
        *made,
        Case("neg.s32", ints(1, I32), python(lambda a: -a, I32), I32),
        Case("abs.s32", ints(1, I32), python(abs, I32), I32),
        Case("bfi.b32", (*ints(2), dice(4).integers(0, 2**14, COUNT, U32)), python(insert, U32), U32, body=unpack),
        Case("prmt.b32", ints(3), python(permuted, U32), U32),
        *(Case(f"shf.{side}.{mode}.b32", funnels, python(funnel(side, mode), U32), U32)
          for side in "lr" for mode in ("wrap", "clamp")),
    ]  # fmt: skip


def comparisons() -> list[Case]:
    six = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
           "ge": np.greater_equal}  # fmt: skip
    unsigned = {"lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal}

    def none(a, b):
        return np.isnan(a) | np.isnan(b)

    two = "setp.lt.s32 %p0|%p1, %a, %b; selp.u32 %r0, 1, 0, %p0; selp.u32 %r1, 2, 0, %p1; or.b32 %out, %r0, %r1;"
    both = "setp.gt.s32 %p1, %b, 5; setp.lt.and.s32 %p0, %a, %b, !%p1;"
    return [
        *(sets(f"setp.{name}.f32", floats(2), lambda a, b, f=f: f(a, b) & ~none(a, b)) for name, f in six.items()),
        *(sets(f"setp.{name}u.f32", floats(2), lambda a, b, f=f: f(a, b) | none(a, b)) for name, f in six.items()),
        *(sets(f"setp.{name}.{kind}", ints(2, t), f) for name, f in six.items() for kind, t in INTEGERS.items()),
        *(sets(f"setp.{name}.u32", ints(2), f) for name, f in unsigned.items()),
        sets("setp.num.f32", floats(2), lambda a, b: ~none(a, b)),
        sets("setp.nan.f32", floats(2), none),
        sets("setp.and", ints(2, I32), lambda a, b: (a < b) & (b <= 5), both),
        Case("setp.two", ints(2, I32), lambda a, b: np.where(a < b, 1, 2).astype(U32), U32, body=two),
    ]


def conversions() -> list[Case]:
    modes = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
    n16, n32 = np.uint32(16), np.uint64(32)

    def nearest(a):
        return np.array([rounded(Fraction(x)) for x in a.tolist()], F32)

    def packed(low, high):
        return high.astype(U32) << n16 | low

    def to(dtype: np.dtype) -> Callable:
        return lambda a: a.astype(dtype)

    return [
        Case("mov.pack", ints(2), lambda a, b: a | b.astype(U64) << n32, U64, body="mov.b64 %out, {%a, %b};"),
        Case("mov.unpack", ints(1, U64), lambda a: (a ^ a >> n32).astype(U32), U32,
             body="mov.b64 {%r0, %r1}, %a; xor.b32 %out, %r0, %r1;"),
        Case("mov.b16", ints(1), lambda a: a >> n16 | a << n16, U32,
             body="mov.b32 {%h0, %h1}, %a; mov.b32 %out, {%h1, %h0};"),
        *(Case(f"cvt.{mode}.{kind}.f32", floats(1), to_integer(t, f), t)
          for mode, f in modes.items() for kind, t in INTEGERS.items()),
        *(Case(f"cvt.{mode}.f32.f32", floats(1), f, F32) for mode, f in modes.items()),
        *(Case(f"cvt.rn.f32.{kind}", ints(1, t), nearest, F32) for kind, t in INTEGERS.items()),
        Case("cvt.sat.f32.f32", floats(1), lambda a: np.where(a > 0, np.minimum(a, F32.type(1)), F32.type(0)), F32),
        Case("cvt.f64.f32", floats(1), to(F64), F64),
        Case("cvt.rn.f32.f64", near(1, F64), to(F32), F32),
        Case("cvt.s64.s32", ints(1, I32), to(I64), I64),
        Case("cvt.u64.u32", ints(1), to(U64), U64),
        Case("cvt.u32.u64", ints(1, U64), to(U32), U32),
        Case("cvt.s32.s8", ints(1), lambda a: a.astype(np.int8).astype(I32), I32),
        Case("cvt.u32.u16", halves(1), to(U32), U32),
        Case("cvt.rn.f16.f32", near(1), half_bits, U16),
        Case("cvt.f32.f16", halves(1), lambda a: a.view(F16).astype(F32), F32),
        Case("cvt.rn.f16x2.f32", near(2), lambda a, b: packed(half_bits(b), half_bits(a)), U32),
        Case("cvt.rn.bf16x2.f32", near(2), lambda a, b: packed(bfloat(b), bfloat(a)), U32),
    ]  # fmt: skip


def of_warps() -> list[Case]:
    """Shuffles, votes and the like; and asynchronous copies of 8 bytes or fewer."""
    moves = [
        ("bfly", "5, 31", shuffled(lambda n: n ^ 5)), ("up", "3, 0", shuffled(lambda n: n - 3, lambda n: n >= 3)),
        ("down", "3, 31", shuffled(lambda n: n + 3, lambda n: n < 29)), ("idx", "7, 31", shuffled(lambda n: 7)),
        ("bfly", f"4, {EIGHTS | 31}", shuffled(lambda n: n ^ 4)),
        ("down", f"2, {EIGHTS | 31}", shuffled(lambda n: n + 2, lambda n: n % 8 < 6)),
        ("up", f"2, {EIGHTS}", shuffled(lambda n: n - 2, lambda n: n % 8 >= 2)),
        ("idx", f"3, {EIGHTS | 31}", shuffled(lambda n: n // 8 * 8 + 3)),
    ]  # fmt: skip
    variable = in_warps(lambda a, b: np.take_along_axis(a, (b & 31).astype(I64), axis=1))
    inside = in_warps(lambda a: np.arange(32) < 29)
    sizes = dice(7).choice(np.uint32([0, 4, 8]), COUNT), *ints(1, U64)
    return [
        *(Case(f"shfl.{mode}.{how}", ints(1), f, U32, body=f"shfl.sync.{mode}.b32 %out, %a, {how}, {ALL};")
          for mode, how, f in moves),
        Case("shfl.variable", ints(2), variable, U32, body=f"shfl.sync.idx.b32 %out, %a, %b, 31, {ALL};"),
        sets("shfl.predicate", ints(1), inside, f"shfl.sync.down.b32 %r0|%p0, %a, 3, 31, {ALL};"),
        *(sets(f"vote.{mode}", ints(1), in_warps(lambda a, f=f, n=limit: f(a < n, axis=1, keepdims=True)),
               f"setp.lt.u32 %p1, %a, {limit}; vote.sync.{mode}.pred %p0, %p1, {ALL};")
          for mode, f, limit in (("all", np.all, 0xF0000000), ("any", np.any, 0x10000000))),
        Case("vote.ballot", ints(1, I32), in_warps(lambda a: bits(a < 0)), U32,
             body=f"setp.lt.s32 %p1, %a, 0; vote.sync.ballot.b32 %out, %p1, {ALL};"),
        *(Case(f"redux.{name}", ints(1), in_warps(lambda a, f=f: f.reduce(a, axis=1, dtype=U32, keepdims=True)), U32,
               body=f"redux.sync.{name}.u32 %out, %a, {ALL};")
          for name, f in (("add", np.add), ("min", np.minimum), ("max", np.maximum))),
        Case("cp.async.8", ints(1, U64), lambda a: a, U64, body=COPY.format(size="")),
        Case("cp.async.8.of", sizes, lambda n, b: np.where(n == 8, b, np.where(n == 4, b & np.uint64(2**32 - 1), 0)),
             U64, body=COPY.format(size=", %a")),
    ]  # fmt: skip


with np.errstate(all="ignore"):
    CASES = [*arithmetic(), *approximations(), *integers(), *comparisons(), *conversions(), *of_warps()]


def mismatch(case: Case, got: np.ndarray) -> np.ndarray:
    """Indices of the results that lie outside the allowed error. Half precision results are compared as numbers."""
    with np.errstate(all="ignore"):
        want = np.asarray(case.reference(*case.operands))
        if case.output == U16 and case.name.endswith(".f16"):
            got, want = got.view(F16), want.view(F16)
        if got.dtype.kind != "f":
            return np.flatnonzero(got != want)
        nan = np.isnan(got) & np.isnan(want)
        if case.relative == 0 and case.absolute == 0:
            want = want.astype(got.dtype)
            same = (got == want) & (np.signbit(got) == np.signbit(want))
        else:
            same = np.abs(got.astype(F64) - want) <= case.relative * np.abs(want) + case.absolute
    return np.flatnonzero(~(same | nan))
