"""`cint`: the int of CUDA C++ inside a kernel: 32 bits, signed, and assumed not to overflow.

Numba computes integers in 64 bits. When a kernel truncates them to 32 bits they may wrap, so neither compiler may hoist
or strength-reduce them across a loop as it does in a C++ kernel: loops unroll, load and index differently. A `cint`
follows C++: sums, differences and products do not overflow, `//` and `%` truncate toward zero, and an index counts from
the first element, never from the end. An operation with another integer gives a `cint`.

A `cuint`, the unsigned int, wraps. So compilers hoist less out of loops, and registers suffice for more.

Numba learns the rules of the type from `integer`, which makes it. They are part of its definition, so the hash of code
that uses a `cint` covers them (see `runtime.definitions`).
"""

import functools
import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.cuda import models
from numba.cuda.cudadecl import registry as typing
from numba.cuda.cudaimpl import registry as lowering
from numba.cuda.extending import intrinsic, register_model
from numba.cuda.typeconv import Conversion
from numba.cuda.typing.templates import AbstractTemplate, signature

WORD = ir.IntType(32)


class Int32(types.Number):
    bitwidth = 32

    def __init__(self, name: str, signed: bool) -> None:
        super().__init__(name)
        self.signed = signed

    def unify(self, typingctx: Any, other: Any) -> Any:
        return self if isinstance(other, types.Integer) else None

    def can_convert_from(self, typingctx: Any, other: Any) -> Any:
        return Conversion.safe if isinstance(other, types.Integer) else None


class Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Int32) -> None:
        super().__init__(manager, kind, WORD)


def _infers(function: Any, rule: Callable[[Any], Any]) -> None:
    """`rule` takes the argument types of a call and returns its signature, or None."""

    def generic(self: Any, args: Any, kws: Any) -> Any:
        return rule(args)

    first = {"target": "cuda"}  # tried before Numba's rules for any target, a dozen for each operator
    members = {"key": function, "generic": generic, "metadata": first}
    typing.register_global(function)(type(function.__name__, (AbstractTemplate,), members))


def _resized(builder: Any, value: Any, kind: Any, signed: bool) -> Any:
    """An integer with the width of `kind`."""
    if value.type.width > kind.width:
        return builder.trunc(value, kind)
    extend = builder.sext if signed else builder.zext
    return value if value.type == kind else extend(value, kind)


def integer(name: str, signed: bool) -> Int32:
    """A type of 32-bit integers whose operations with integers of Numba give itself; a signed one never overflows."""
    self = Int32(name, signed)
    register_model(Int32)(Model)

    @lowering.lower_cast(types.Integer, self)
    def from_integer(context, builder, source, target, value):
        return _resized(builder, value, WORD, source.signed)

    @lowering.lower_cast(self, types.Integer)
    @lowering.lower_cast(self, Int32)
    def to_integer(context, builder, source, target, value):
        return _resized(builder, value, context.get_value_type(target), signed)

    @lowering.lower_cast(self, types.Float)
    def to_float(context, builder, source, target, value):
        return (builder.sitofp if signed else builder.uitofp)(value, context.get_value_type(target))

    def computes(functions: tuple[Any, ...], emit: Any, result: Any = self, arguments: int = 2) -> None:
        """`emit(builder, *args)` generates the code of functions of integers of which at least one is of this type.

        A signed one wins over an unsigned one.
        """

        def rule(args: Any) -> Any:
            others = (Int32, types.Integer) if signed else types.Integer
            ints = len(args) == arguments and all(kind == self or isinstance(kind, others) for kind in args)
            return signature(result, *(self,) * arguments) if ints and self in args else None

        for function in functions:
            _infers(function, rule)
            lowering.lower(function, *(self,) * arguments)(lambda context, builder, sig, args: emit(builder, *args))

    def compare(sign: str, b: Any, x: Any, y: Any) -> Any:
        return (b.icmp_signed if signed else b.icmp_unsigned)(sign, x, y)

    wrap = ("nsw",) if signed else ()
    computes((operator.add, operator.iadd), lambda b, x, y: b.add(x, y, flags=wrap))
    computes((operator.sub, operator.isub), lambda b, x, y: b.sub(x, y, flags=wrap))
    computes((operator.mul, operator.imul), lambda b, x, y: b.mul(x, y, flags=wrap))
    computes((operator.floordiv, operator.ifloordiv), lambda b, x, y: (b.sdiv if signed else b.udiv)(x, y))
    computes((operator.mod, operator.imod), lambda b, x, y: (b.srem if signed else b.urem)(x, y))
    computes((operator.and_, operator.iand), lambda b, x, y: b.and_(x, y))
    computes((operator.or_, operator.ior), lambda b, x, y: b.or_(x, y))
    computes((operator.xor, operator.ixor), lambda b, x, y: b.xor(x, y))
    computes((operator.rshift, operator.irshift), lambda b, x, y: (b.ashr if signed else b.lshr)(x, y))
    computes((min,), lambda b, x, y: b.select(compare("<", b, x, y), x, y))
    if signed:
        computes((operator.lshift, operator.ilshift), lambda b, x, y: b.shl(x, y))
        computes((operator.neg,), lambda b, x: b.sub(ir.Constant(WORD, 0), x, flags=wrap), arguments=1)
    for sign, name in (("==", "eq"), ("!=", "ne"), ("<", "lt"), ("<=", "le"), (">", "gt"), (">=", "ge")):
        computes((getattr(operator, name),), functools.partial(compare, sign), types.boolean)
    _indexes(self)
    return self


def _indexes(kind: Int32) -> None:
    """An index of this type counts from the first element of a pointer or of an array of one dim."""

    def row(where: Any, index: Any) -> bool:
        known = isinstance(where, types.CPointer) or (isinstance(where, types.Array) and where.ndim == 1)
        return known and index == kind

    def element(context: Any, builder: Any, of: Any, where: Any, index: Any) -> Any:
        data = context.make_array(of)(context, builder, where).data if isinstance(of, types.Array) else where
        return builder.gep(data, [index], inbounds=True)

    def load(context, builder, sig, args):
        return context.unpack_value(builder, sig.return_type, element(context, builder, sig.args[0], *args))

    def store(context, builder, sig, args):
        context.pack_value(builder, sig.args[2], args[2], element(context, builder, sig.args[0], *args[:2]))
        return context.get_dummy_value()

    _infers(operator.getitem, lambda args: signature(args[0].dtype, *args) if row(*args) else None)
    _infers(
        operator.setitem,
        lambda args: signature(types.none, *args[:2], args[0].dtype) if row(*args[:2]) else None,
    )
    for where in (types.CPointer, types.Array):
        lowering.lower(operator.getitem, where, kind)(load)
        lowering.lower(operator.setitem, where, kind, types.Any)(store)


def cast_to(kind: Int32) -> Any:
    """A device function: an integer of any width as one of this type, by its low 32 bits."""

    @intrinsic
    def cast(typingctx, value):
        def codegen(context, builder, signature, args):
            return context.cast(builder, args[0], signature.args[0], kind)

        return kind(value), codegen

    return cast


CINT = integer("cint", signed=True)
cint = cast_to(CINT)
CUINT = integer("cuint", signed=False)
cuint = cast_to(CUINT)
