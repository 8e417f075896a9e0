"""Register tiles: tuples of values that stay in registers, and operations on them.

An operation is a Python function that emits LLVM IR; its loops run while the kernel is compiled, so all is unrolled.
Numba promises neither for loops over local arrays. `register_op` makes one a device function; in it, `Value` is a
register and `Builder` has the instructions.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import partialmethod
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from ..device.asm import FLOAT, I32, I64, SHARED, VOID, asm, device_op
from ..device.cint import CINT

BYTES = 16  # of a vector load or store


def floats(count: int) -> Any:
    return types.UniTuple(types.float32, count)


def tuples(*counts: int) -> Any:
    return types.Tuple([floats(count) for count in counts])


def words(count: int) -> Any:
    """Raw 32-bit registers."""
    return types.UniTuple(types.uint32, count)


def ints(count: int) -> Any:
    return types.UniTuple(CINT, count)


def f32(x: float) -> Any:
    return ir.Constant(FLOAT, float(np.float32(x)))


def i32(x: int) -> Any:
    return ir.Constant(I32, int(x))


class Value:
    """A register of a kernel that is being compiled. Operators emit an instruction on int32, int64 or float32.

    A number among the operands is a constant of the same type. Integers compare as signed ones; `>>` shifts zeros in.
    """

    def __init__(self, b: "Builder", value: Any) -> None:
        self.b, self.value, self.type = b, value, value.type

    def _emit(self, name: str, other: Any, *how: str, swapped: bool = False) -> "Value":
        if isinstance(other, (int, float)):
            other = f32(other) if self.type == FLOAT else ir.Constant(self.type, int(other))
        operands = (other, self) if swapped else (self, other)
        return getattr(self.b, name)(*how, *operands)

    def _arithmetic(self, name: str, other: Any, swapped: bool = False) -> "Value":
        return self._emit("f" * (self.type == FLOAT) + name, other, swapped=swapped)

    def _compare(self, how: str, other: Any) -> "Value":
        return self._emit("fcmp_ordered" if self.type == FLOAT else "icmp_signed", other, how)

    __add__, __radd__ = partialmethod(_arithmetic, "add"), partialmethod(_arithmetic, "add", swapped=True)
    __sub__, __rsub__ = partialmethod(_arithmetic, "sub"), partialmethod(_arithmetic, "sub", swapped=True)
    __mul__, __rmul__ = partialmethod(_arithmetic, "mul"), partialmethod(_arithmetic, "mul", swapped=True)
    __and__, __or__, __xor__ = partialmethod(_emit, "and_"), partialmethod(_emit, "or_"), partialmethod(_emit, "xor")
    __neg__ = partialmethod(_arithmetic, "sub", -0.0, swapped=True)  # NVVM rejects fneg
    __lshift__, __rshift__ = partialmethod(_emit, "shl"), partialmethod(_emit, "lshr")
    __lt__, __le__ = partialmethod(_compare, "<"), partialmethod(_compare, "<=")
    __gt__, __ge__ = partialmethod(_compare, ">"), partialmethod(_compare, ">=")
    __eq__, __ne__ = partialmethod(_compare, "=="), partialmethod(_compare, "!=")  # type: ignore[assignment]


class Builder:
    """llvmlite's IRBuilder with `Value` for its operands and results, and with more instructions."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder

    def __getattr__(self, name: str) -> Callable[..., Any]:
        emit = getattr(self.builder, name)

        def emitted(*args: Any, **options: Any) -> Any:
            made = emit(*map(raw, args), **options)
            return Value(self, made) if isinstance(made, ir.Value) else made

        return emitted

    def ptx(self, text: str, constraints: str, result: Any, args: Sequence[Any]) -> Any:
        """One volatile PTX statement, as `device.asm` has it; a list where `result` is one of types."""
        if isinstance(result, list):
            made = self.ptx(text, constraints, ir.LiteralStructType(result), args)
            return [self.extract_value(made, i) for i in range(len(result))]
        return Value(self, asm(self.builder, text, constraints, result, raw(args)))

    def pure(self, text: str, constraints: str, result: Any, *args: Any) -> Any:
        """One PTX statement that the compiler may move or drop."""
        return self.asm(ir.FunctionType(result, [x.type for x in args]), text, constraints, args, side_effect=False)

    def exp2(self, x: Value) -> Value:
        return self.pure("ex2.approx.ftz.f32 $0, $1;", "=f,f", FLOAT, x)

    def maximum(self, x: Any, y: Any) -> Value:
        return self.pure("max.f32 $0, $1, $2;", "=f,f,f", FLOAT, x, y)

    def smaller(self, x: Value, y: Value) -> Value:
        return self.select(x < y, x, y)

    def mma(self, kind: str, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> list[Value]:
        """a b + c of a warp in float32, `kind` is m16n8k8 or m16n8k16 and the types; a and b are words."""
        text = f"mma.sync.aligned.{kind} {{$0, $1, $2, $3}}, {{$4, $5, $6, $7}}, {{$8, $9}}, {{$10, $11, $12, $13}};"
        return self.ptx(text, ",".join(["=f"] * 4 + ["r"] * 6 + ["f"] * 4), [FLOAT] * 4, [*a, *b, *c])

    def shuffle(self, mode: str, x: Value, lane: Any) -> Value:
        """`shfl.sync` of all lanes: "bfly" takes a mask, "idx" a lane; an int, or an i32 known at run time."""
        lane = i32(lane) if isinstance(lane, int) else lane
        return self.ptx(f"shfl.sync.{mode}.b32 $0, $1, $2, 31, -1;", "=f,f,r", FLOAT, [x, lane])

    def any_lane(self, condition: Value) -> Value:
        """Whether a condition holds in any lane of the warp."""
        text = "{ .reg .pred p; setp.ne.b32 p, $1, 0; vote.sync.any.pred p, p, -1; selp.b32 $0, 1, 0, p; }"
        return self.trunc(self.ptx(text, "=r,r", I32, [self.zext(condition, I32)]), ir.IntType(1))

    def where(self, condition: Value, emit: Callable[[], Sequence[Any]], otherwise: Sequence[Any]) -> list[Value]:
        """The values of `emit` where the condition holds, else `otherwise`; a branch skips the code of `emit`."""
        before = self.builder.basic_block
        with self.if_then(condition):
            made = emit()
            inside = self.builder.basic_block
        joined = []
        for new, old in zip(made, otherwise, strict=True):
            joined.append(self.phi(new.type))
            joined[-1].value.add_incoming(raw(new), inside)
            joined[-1].value.add_incoming(raw(old), before)
        return joined

    def load_words(self, how: str, address: Value, count: int, offset: int = 0) -> list[Value]:
        """`count` (1, 2 or 4) registers by one load, such as "ld.shared", of an address with a constant offset."""
        vector, names = _vector(0, count)
        constraints = ",".join([*["=r"] * count, "r" if address.type == I32 else "l", "~{memory}"])
        text = f"{how}{vector}.b32 {names}, [${count}+{offset}];"
        if count == 1:
            return [self.ptx(text, constraints, I32, [address])]
        return self.ptx(text, constraints, [I32] * count, [address])

    def store_words(self, how: str, address: Value, values: Sequence[Any], offset: int = 0) -> None:
        """As `load_words`; the values are i32."""
        vector, names = _vector(1, len(values))
        constraints = ",".join(["r" if address.type == I32 else "l", *["r"] * len(values), "~{memory}"])
        self.ptx(f"{how}{vector}.b32 [$0+{offset}], {names};", constraints, VOID, [address, *values])

    def ldmatrix(self, address: Value, offset: int = 0, transposed: bool = False) -> list[Value]:
        """Four 8 x 8 matrices of halves in shared memory; lane l gives the address of row l % 8 of matrix l // 8."""
        how = ".trans" * transposed
        text = f"ldmatrix.sync.aligned.m8n8.x4{how}.shared.b16 {{$0, $1, $2, $3}}, [$4+{offset}];"
        return self.ptx(text, "=r,=r,=r,=r,r,~{memory}", [I32] * 4, [address])

    def at_float(self, address: Value, index: Any) -> Value:
        return address + (index << 2)

    def as_floats(self, values: Sequence[Any]) -> list[Value]:
        return [self.bitcast(value, FLOAT) for value in values]

    def as_words(self, values: Sequence[Any]) -> list[Value]:
        return [self.bitcast(value, I32) for value in values]

    def load_floats(self, address: Value, count: int, offset: int = 0) -> list[Value]:
        """From shared memory, four at a time."""
        loaded = [self.load_words("ld.shared", address, 4, offset + 4 * i) for i in range(0, count, 4)]
        return self.as_floats([word for vector in loaded for word in vector])

    def store_floats(self, address: Value, values: Sequence[Any], offset: int = 0) -> None:
        registers = self.as_words(values)
        for i in range(0, len(registers), 4):
            self.store_words("st.shared", address, registers[i : i + 4], offset + 4 * i)

    def sync_warp(self) -> None:
        self.ptx("bar.warp.sync -1;", "~{memory}", VOID, [])

    def sync_block(self) -> None:
        self.ptx("bar.sync 0;", "~{memory}", VOID, [])


def raw(x: Any) -> Any:
    """llvmlite's value of a `Value`, and of each in a list."""
    if isinstance(x, (list, tuple)):
        return [raw(each) for each in x]
    return x.value if isinstance(x, Value) else x


def _vector(first: int, count: int) -> tuple[str, str]:
    names = ", ".join(f"${first + i}" for i in range(count))
    return (f".v{count}", f"{{{names}}}") if count > 1 else ("", names)


def _lowered(context: Any, b: Any, kind: Any, value: Any, cast: bool = False) -> Any:
    """An argument as `emit` takes it: a tuple as a list, a pointer as i64, a shared array as an i32 address."""
    if isinstance(kind, types.BaseTuple):
        parts = cgutils.unpack_tuple(b, value)
        return [_lowered(context, b, of, part) for of, part in zip(kind.types, parts, strict=True)]
    if isinstance(kind, types.CPointer):
        return b.ptrtoint(value, I64)
    if isinstance(kind, types.Array):
        data = context.make_array(kind)(context, b, value).data
        return b.ptrtoint(b.addrspacecast(data, data.type.pointee.as_pointer(SHARED)), I32)
    if isinstance(kind, types.Integer) and value.type != I32:
        return b.trunc(value, I32) if value.type.width > 32 else b.sext(value, I32)
    return value


def _wrapped(b: Builder, x: Any) -> Any:
    return [_wrapped(b, each) for each in x] if isinstance(x, list) else Value(b, x)


def register_op(result: Any) -> Callable[[Callable[..., Any]], Any]:
    """Make a device function of `emit(builder, *args)`, which returns a value, or a list where `result` is a tuple.

    Keyword-only parameters of `emit` are known when the kernel is compiled, such as its shape. Where there are some,
    the function that is made takes them and returns the device function of the others; `result` may be a function of
    those that it names.
    """

    def decorate(emit: Callable[..., Any]) -> Any:
        known = [each for each in inspect.signature(emit).parameters.values() if each.kind is each.KEYWORD_ONLY]
        if not known:
            return _device_function(emit, result, {})
        signature = inspect.Signature([each.replace(kind=each.POSITIONAL_OR_KEYWORD) for each in known])

        def made(*args: Any, **options: Any) -> Any:
            bound = signature.bind(*args, **options)
            bound.apply_defaults()
            given = bound.arguments
            if isinstance(result, types.Type):
                return _device_function(emit, result, given)
            named = {name: given[name] for name in inspect.signature(result).parameters}
            return _device_function(emit, result(**named), given)

        return made

    return decorate


def _device_function(emit: Callable[..., Any], result: Any, known: dict[str, Any]) -> Any:
    def emitted(b: Any, *args: Any) -> Any:
        over = Builder(b)
        return raw(emit(over, *_wrapped(over, list(args)), **known))

    parameters = inspect.signature(emit).parameters.values()
    emitted.__signature__ = inspect.Signature([each for each in parameters if each.name not in known])  # type: ignore[attr-defined]
    emitted.__name__ = emit.__name__
    return device_op(result, lowered=_lowered)(emitted)


@register_op(lambda count: floats(count))
def constant(b, *, count, value):
    """`count` float32, each `value`."""
    return [f32(value)] * count


@register_op(lambda count: floats(count))
def part(b, values, *, first, count):
    """`count` of float32 values, from `first` on."""
    return values[first : first + count]


@register_op(lambda count: words(count))
def zero_words(b, *, count):
    return [i32(0)] * count


@register_op(types.void)
def store_shared(b, array, index, tile, *, count):
    """Store `count` consecutive float32; index a multiple of 4."""
    b.store_floats(b.at_float(array, index), tile)


@register_op(types.void)
def launch_dependents(b):
    """Let the next launch begin (programmatic dependent launch); its `wait_for_launch` waits for all of this one."""
    b.ptx("griddepcontrol.launch_dependents;", "~{memory}", VOID, [])


@register_op(types.void)
def wait_for_launch(b):
    """Wait until the launch before is complete and its writes are visible."""
    b.ptx("griddepcontrol.wait;", "~{memory}", VOID, [])
