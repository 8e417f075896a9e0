"""Register tiles: tuples of values that stay in registers, and operations on them.

An operation is a Python function that emits LLVM IR; its loops run while the kernel is compiled, so all is unrolled.
Numba promises neither for loops over local arrays.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import partialmethod
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.cuda.extending import intrinsic

from ..device.asm import _asm
from ..device.cint import CINT

FLOAT, I32, I64, VOID = ir.FloatType(), ir.IntType(32), ir.IntType(64), ir.VoidType()
SHARED = 3  # LLVM's address space
BYTES = 16  # of a vector load or store


def floats(count: int) -> Any:
    return types.UniTuple(types.float32, count)


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
    __lshift__, __rshift__ = partialmethod(_emit, "shl"), partialmethod(_emit, "lshr")
    __lt__, __le__ = partialmethod(_compare, "<"), partialmethod(_compare, "<=")
    __gt__, __ge__ = partialmethod(_compare, ">"), partialmethod(_compare, ">=")
    __eq__, __ne__ = partialmethod(_compare, "=="), partialmethod(_compare, "!=")  # type: ignore[assignment]


class Builder:
    """llvmlite's IRBuilder, which takes and returns each `Value` in place of what it has."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder

    def __getattr__(self, name: str) -> Callable[..., Any]:
        emit = getattr(self.builder, name)

        def emitted(*args: Any, **options: Any) -> Any:
            made = emit(*map(raw, args), **options)
            return Value(self, made) if isinstance(made, ir.Value) else made

        return emitted


def raw(x: Any) -> Any:
    """llvmlite's values, of a `Value` or of a list with some."""
    if isinstance(x, (list, tuple)):
        return [raw(each) for each in x]
    return x.value if isinstance(x, Value) else x


def asm(b: Builder, text: str, constraints: str, result: Any, args: Sequence[Any]) -> Value:
    """One volatile PTX statement, as `device.asm` has it."""
    return Value(b, _asm(b.builder, text, constraints, result, raw(args)))


def pure(b: Any, text: str, constraints: str, result: Any, *args: Any) -> Any:
    """One PTX statement that the compiler may move or drop."""
    return b.asm(ir.FunctionType(result, [a.type for a in args]), text, constraints, list(args), side_effect=False)


def negate(b: Any, x: Any) -> Any:
    return -0.0 - x  # NVVM rejects fneg


def exp2(b: Any, x: Any) -> Any:
    return pure(b, "ex2.approx.ftz.f32 $0, $1;", "=f,f", FLOAT, x)


def maximum(b: Any, x: Any, y: Any) -> Any:
    return pure(b, "max.f32 $0, $1, $2;", "=f,f,f", FLOAT, x, y)


def shuffle(b: Any, mode: str, x: Any, lane: Any) -> Any:
    """`shfl.sync` of all lanes: "bfly" takes a mask, "idx" a lane; an int, or an i32 known at run time."""
    if isinstance(lane, int):
        lane = i32(lane)
    return asm(b, f"shfl.sync.{mode}.b32 $0, $1, $2, 31, -1;", "=f,f,r", FLOAT, [x, lane])


def any_lane(b: Any, condition: Any) -> Any:
    """Whether a condition holds in any lane of the warp."""
    text = "{ .reg .pred p; setp.ne.b32 p, $1, 0; vote.sync.any.pred p, p, -1; selp.b32 $0, 1, 0, p; }"
    return b.trunc(asm(b, text, "=r,r", I32, [b.zext(condition, I32)]), ir.IntType(1))


def where(b: Any, condition: Any, emit: Callable[[], Sequence[Any]], otherwise: Sequence[Any]) -> list[Any]:
    """The values of `emit`, which a branch skips where the condition does not hold; there, `otherwise`."""
    before = b.builder.basic_block
    with b.if_then(condition):
        made = emit()
        inside = b.builder.basic_block
    joined = []
    for new, old in zip(made, otherwise, strict=True):
        joined.append(b.phi(new.type))
        joined[-1].value.add_incoming(raw(new), inside)
        joined[-1].value.add_incoming(raw(old), before)
    return joined


def smaller(b: Any, x: Any, y: Any) -> Any:
    return b.select(x < y, x, y)


def load_words(b: Any, how: str, address: Any, count: int, offset: int = 0) -> list[Any]:
    """`count` (1, 2 or 4) registers by one load, such as `how` = "ld.shared", of an address with a constant offset."""
    kind = ir.LiteralStructType([I32] * count) if count > 1 else I32
    names = ", ".join(f"${i}" for i in range(count))
    vector, names = (f".v{count}", f"{{{names}}}") if count > 1 else ("", names)
    where = "r" if address.type == I32 else "l"
    text = f"{how}{vector}.b32 {names}, [${count}+{offset}];"
    loaded = asm(b, text, ",".join(["=r"] * count + [where, "~{memory}"]), kind, [address])
    return [b.extract_value(loaded, i) for i in range(count)] if count > 1 else [loaded]


def store_words(b: Any, how: str, address: Any, values: Sequence[Any], offset: int = 0) -> None:
    """As `load_words`; the values are i32."""
    count = len(values)
    names = ", ".join(f"${i + 1}" for i in range(count))
    vector, names = (f".v{count}", f"{{{names}}}") if count > 1 else ("", names)
    where = "r" if address.type == I32 else "l"
    text = f"{how}{vector}.b32 [$0+{offset}], {names};"
    asm(b, text, ",".join([where] + ["r"] * count + ["~{memory}"]), VOID, [address, *values])


def ldmatrix(b: Any, address: Any, offset: int = 0, transposed: bool = False) -> list[Any]:
    """Four 8 x 8 matrices of halves in shared memory; lane l gives the address of row l % 8 of matrix l // 8."""
    how = ".trans" * transposed
    text = f"ldmatrix.sync.aligned.m8n8.x4{how}.shared.b16 {{$0, $1, $2, $3}}, [$4+{offset}];"
    made = asm(b, text, "=r,=r,=r,=r,r,~{memory}", ir.LiteralStructType([I32] * 4), [address])
    return [b.extract_value(made, i) for i in range(4)]


def at_float(b: Any, address: Any, index: Any) -> Any:
    return address + (index << 2)


def as_floats(b: Any, values: Sequence[Any]) -> list[Any]:
    return [b.bitcast(value, FLOAT) for value in values]


def as_words(b: Any, values: Sequence[Any]) -> list[Any]:
    return [b.bitcast(value, I32) for value in values]


def load_floats(b: Any, address: Any, count: int, offset: int = 0) -> list[Any]:
    """From shared memory, four at a time."""
    loaded = [load_words(b, "ld.shared", address, 4, offset + 4 * i) for i in range(0, count, 4)]
    return as_floats(b, [word for vector in loaded for word in vector])


def store_floats(b: Any, address: Any, values: Sequence[Any], offset: int = 0) -> None:
    registers = as_words(b, values)
    for i in range(0, len(registers), 4):
        store_words(b, "st.shared", address, registers[i : i + 4], offset + 4 * i)


def _lowered(context: Any, b: Any, kind: Any, value: Any) -> Any:
    """What `emit` gets of an argument: a list of a tuple, an i64 address of a pointer, an i32 one of a shared array."""
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


def _packed(context: Any, b: Any, kind: Any, made: Any) -> Any:
    if isinstance(kind, types.BaseTuple):
        made = context.make_tuple(b, kind, [_packed(context, b, of, x) for of, x in zip(kind.types, made, strict=True)])
    return made


def op(result: Any) -> Callable[[Callable[..., Any]], Any]:
    """Make a device function of `emit(builder, *args)`, which returns a value, or a list where `result` is a tuple.

    `result` may be a function of what is known when the kernel is compiled, such as its shape: `emit` takes that behind
    the builder, and what is made takes it and returns the device function of the other arguments.
    """

    def decorate(emit: Callable[..., Any]) -> Any:
        if isinstance(result, types.Type):
            return _device_function(emit, result, ())
        known = inspect.signature(result)

        def made(*args: Any, **options: Any) -> Any:
            bound = known.bind(*args, **options)
            bound.apply_defaults()
            return _device_function(emit, result(*bound.args), bound.args)

        return made

    return decorate


def _device_function(emit: Callable[..., Any], result: Any, known: tuple[Any, ...]) -> Any:
    def typed(typingctx: Any, *kinds: Any) -> Any:
        def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
            values = [_lowered(context, b, kind, arg) for kind, arg in zip(signature.args, args, strict=True)]
            over = Builder(b)
            made = raw(emit(over, *known, *_wrapped(over, values)))
            return context.get_dummy_value() if result == types.void else _packed(context, b, result, made)

        return result(*kinds), codegen

    names = ["typingctx", *list(inspect.signature(emit).parameters)[1 + len(known) :]]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    typed.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])  # type: ignore[attr-defined]
    typed.__name__ = typed.__qualname__ = emit.__name__
    return intrinsic(typed)


@op(lambda count, value: floats(count))
def constant(b, count, value):
    """`count` float32."""
    return [f32(value)] * count


@op(lambda first, count: floats(count))
def part(b, first, count, values):
    """`count` float32 of them, from `first` on."""
    return values[first : first + count]


@op(lambda count: words(count))
def zero_words(b, count):
    return [i32(0)] * count


@op(lambda count: types.void)
def store_shared(b, count, array, index, tile):
    """`count` consecutive float32; index a multiple of 4."""
    store_floats(b, at_float(b, array, index), tile)


def sync_warp(b: Any) -> None:
    asm(b, "bar.warp.sync -1;", "~{memory}", VOID, [])


def sync_block(b: Any) -> None:
    asm(b, "bar.sync 0;", "~{memory}", VOID, [])


@op(types.void)
def launch_dependents(b):
    """Let the next launch begin (programmatic dependent launch); `wait_for_launch` there waits for all of this one."""
    asm(b, "griddepcontrol.launch_dependents;", "~{memory}", VOID, [])


@op(types.void)
def wait_for_launch(b):
    """Wait until the launch before is complete and its writes are visible."""
    asm(b, "griddepcontrol.wait;", "~{memory}", VOID, [])
