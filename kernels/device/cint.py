"""`cint`: the int of CUDA C++ inside a kernel: 32 bits, signed, and assumed not to overflow.

Numba computes integers in 64 bits. When a kernel truncates them to 32 bits they may wrap, so neither compiler may hoist
or strength-reduce them across a loop as it does in a C++ kernel: loops unroll, load and index differently. A `cint`
follows C++: sums, differences and products do not overflow, `//` and `%` truncate toward zero, and an index counts from
the first element, never from the end. An operation with another integer gives a `cint`.

Numba learns the rules of the type through calls on `CINT`. They are part of its definition, so the hash of code that
uses a `cint` covers them (see `runtime.definitions`).
"""

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


class CInt(types.Number):
    signed, bitwidth = True, 32

    def __init__(self) -> None:
        super().__init__("cint")

    def unify(self, typingctx: Any, other: Any) -> Any:
        return self if isinstance(other, types.Integer) else None

    def can_convert_from(self, typingctx: Any, other: Any) -> Any:
        return Conversion.safe if isinstance(other, types.Integer) else None

    def has_model(self, model: Any) -> None:
        register_model(CInt)(model)

    def casts(self, source: Any, target: Any, emit: Any) -> None:
        lowering.lower_cast(source, target)(emit)

    def infers(self, function: Any, rule: Callable[[Any], Any]) -> None:
        """`rule` takes the argument types of a call and returns its signature, or None."""

        def generic(self: Any, args: Any, kws: Any) -> Any:
            return rule(args)

        first = {"target": "cuda"}  # tried before Numba's rules for any target, a dozen for each operator
        members = {"key": function, "generic": generic, "metadata": first}
        typing.register_global(function)(type(function.__name__, (AbstractTemplate,), members))

    def lowers(self, function: Any, kinds: tuple[Any, ...], emit: Any) -> None:
        lowering.lower(function, *kinds)(emit)

    def computes(self, functions: tuple[Any, ...], result: Any, emit: Any, arguments: int = 2) -> None:
        """`emit(builder, *args)` generates the code of functions of ints of which at least one is a cint."""

        def rule(args: Any) -> Any:
            ints = len(args) == arguments and all(isinstance(kind, CInt | types.Integer) for kind in args)
            return signature(result, *(CINT,) * arguments) if ints and CINT in args else None

        for function in functions:
            self.infers(function, rule)
            self.lowers(function, (CInt,) * arguments, lambda context, builder, sig, args: emit(builder, *args))


CINT = CInt()


@intrinsic
def cint(typingctx, value):
    """`value`, an integer of any width, as a cint."""

    def codegen(context, builder, signature, args):
        return context.cast(builder, args[0], signature.args[0], CINT)

    return CINT(value), codegen


class Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: CInt) -> None:
        super().__init__(manager, kind, WORD)


def from_integer(context, builder, source, target, value):
    if value.type.width > WORD.width:
        return builder.trunc(value, WORD)
    extend = builder.sext if source.signed else builder.zext
    return value if value.type == WORD else extend(value, WORD)


def to_integer(context, builder, source, target, value):
    kind = context.get_value_type(target)
    if kind.width < WORD.width:
        return builder.trunc(value, kind)
    return value if kind == WORD else builder.sext(value, kind)


def to_float(context, builder, source, target, value):
    return builder.sitofp(value, context.get_value_type(target))


CINT.has_model(Model)
CINT.casts(types.Integer, CInt, from_integer)
CINT.casts(CInt, types.Integer, to_integer)
CINT.casts(CInt, types.Float, to_float)

NO_WRAP = ("nsw",)
CINT.computes((operator.add, operator.iadd), CINT, lambda builder, a, b: builder.add(a, b, flags=NO_WRAP))
CINT.computes((operator.sub, operator.isub), CINT, lambda builder, a, b: builder.sub(a, b, flags=NO_WRAP))
CINT.computes((operator.mul, operator.imul), CINT, lambda builder, a, b: builder.mul(a, b, flags=NO_WRAP))
CINT.computes((operator.floordiv, operator.ifloordiv), CINT, lambda builder, a, b: builder.sdiv(a, b))
CINT.computes((operator.mod, operator.imod), CINT, lambda builder, a, b: builder.srem(a, b))
CINT.computes((operator.and_, operator.iand), CINT, lambda builder, a, b: builder.and_(a, b))
CINT.computes((operator.or_, operator.ior), CINT, lambda builder, a, b: builder.or_(a, b))
CINT.computes((operator.xor, operator.ixor), CINT, lambda builder, a, b: builder.xor(a, b))
CINT.computes((operator.lshift, operator.ilshift), CINT, lambda builder, a, b: builder.shl(a, b))
CINT.computes((operator.rshift, operator.irshift), CINT, lambda builder, a, b: builder.ashr(a, b))
CINT.computes((operator.neg,), CINT, lambda builder, a: builder.sub(ir.Constant(WORD, 0), a, flags=NO_WRAP), 1)
CINT.computes((min,), CINT, lambda builder, a, b: builder.select(builder.icmp_signed("<", a, b), a, b))
CINT.computes((operator.eq,), types.boolean, lambda builder, a, b: builder.icmp_signed("==", a, b))
CINT.computes((operator.ne,), types.boolean, lambda builder, a, b: builder.icmp_signed("!=", a, b))
CINT.computes((operator.lt,), types.boolean, lambda builder, a, b: builder.icmp_signed("<", a, b))
CINT.computes((operator.le,), types.boolean, lambda builder, a, b: builder.icmp_signed("<=", a, b))
CINT.computes((operator.gt,), types.boolean, lambda builder, a, b: builder.icmp_signed(">", a, b))
CINT.computes((operator.ge,), types.boolean, lambda builder, a, b: builder.icmp_signed(">=", a, b))


def _indexed(where: Any, index: Any) -> bool:
    row = isinstance(where, types.CPointer) or (isinstance(where, types.Array) and where.ndim == 1)
    return row and isinstance(index, CInt)


def item_type(args: Any) -> Any:
    return signature(args[0].dtype, *args) if _indexed(*args) else None


def store_type(args: Any) -> Any:
    where, index, _ = args
    return signature(types.none, where, index, where.dtype) if _indexed(where, index) else None


def _element(context, builder, kind, where, index):
    data = context.make_array(kind)(context, builder, where).data if isinstance(kind, types.Array) else where
    return builder.gep(data, [index], inbounds=True)


def load(context, builder, sig, args):
    return context.unpack_value(builder, sig.return_type, _element(context, builder, sig.args[0], *args))


def store(context, builder, sig, args):
    context.pack_value(builder, sig.args[2], args[2], _element(context, builder, sig.args[0], *args[:2]))
    return context.get_dummy_value()


CINT.infers(operator.getitem, item_type)
CINT.infers(operator.setitem, store_type)
for _where in (types.CPointer, types.Array):
    CINT.lowers(operator.getitem, (_where, CInt), load)
    CINT.lowers(operator.setitem, (_where, CInt, types.Any), store)
