"""`cint`: the int of CUDA C++ inside a kernel, 32 bits, signed, and taken not to overflow.

Numba adds and multiplies integers in 64 bits. Cut back to 32 they may wrap, so that neither compiler may move them
across a loop as it does those of a C++ kernel: loops unroll, load and index otherwise. A `cint` keeps what C++ says:
sums, differences and products do not overflow, `//` and `%` round to zero, an index counts from the first element and
never from behind. With another integer the result is a `cint`.
"""

from __future__ import annotations

import operator
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


CINT = CInt()


@register_model(CInt)
class CIntModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: CInt) -> None:
        super().__init__(manager, kind, WORD)


@intrinsic
def cint(typingctx, value):
    """`value`, an integer of any width, as an int."""

    def codegen(context, builder, signature, args):
        return context.cast(builder, args[0], signature.args[0], CINT)

    return CINT(value), codegen


@lowering.lower_cast(types.Integer, CInt)
def _from_integer(context, builder, source, target, value):
    if value.type.width > WORD.width:
        return builder.trunc(value, WORD)
    extend = builder.sext if source.signed else builder.zext
    return value if value.type == WORD else extend(value, WORD)


@lowering.lower_cast(CInt, types.Integer)
def _to_integer(context, builder, source, target, value):
    kind = context.get_value_type(target)
    if kind.width < WORD.width:
        return builder.trunc(value, kind)
    return value if kind == WORD else builder.sext(value, kind)


@lowering.lower_cast(CInt, types.Float)
def _to_float(context, builder, source, target, value):
    return builder.sitofp(value, context.get_value_type(target))


def _is_int(kind: Any) -> bool:
    return isinstance(kind, CInt | types.Integer)


def _operator(names: str, result: Any, emit: Any) -> None:
    class Typing(AbstractTemplate):
        def generic(self, args, kws):
            if any(isinstance(kind, CInt) for kind in args) and all(map(_is_int, args)):
                return signature(result, *(CINT,) * len(args))
            return None

    def lower(context, builder, sig, args):
        return emit(builder, *args)

    for name in names.split():
        function = getattr(operator, name)
        typing.register_global(function)(type(name, (Typing,), {"key": function}))
        for count in (1,) if name in ("neg", "invert") else (2,):
            lowering.lower(function, *(CInt,) * count)(lower)


def _comparison(symbol: str) -> Any:
    return lambda builder, a, b: builder.icmp_signed(symbol, a, b)


NO_WRAP = ("nsw",)
_operator("add iadd", CINT, lambda builder, a, b: builder.add(a, b, flags=NO_WRAP))
_operator("sub isub", CINT, lambda builder, a, b: builder.sub(a, b, flags=NO_WRAP))
_operator("mul imul", CINT, lambda builder, a, b: builder.mul(a, b, flags=NO_WRAP))
_operator("floordiv ifloordiv", CINT, lambda builder, a, b: builder.sdiv(a, b))
_operator("mod imod", CINT, lambda builder, a, b: builder.srem(a, b))
_operator("and_ iand", CINT, lambda builder, a, b: builder.and_(a, b))
_operator("or_ ior", CINT, lambda builder, a, b: builder.or_(a, b))
_operator("xor ixor", CINT, lambda builder, a, b: builder.xor(a, b))
_operator("lshift ilshift", CINT, lambda builder, a, b: builder.shl(a, b))
_operator("rshift irshift", CINT, lambda builder, a, b: builder.ashr(a, b))
_operator("neg", CINT, lambda builder, a: builder.sub(ir.Constant(WORD, 0), a, flags=NO_WRAP))
for _name, _symbol in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
    _operator(_name, types.boolean, _comparison(_symbol))


def _one_dimensional(kind: Any) -> bool:
    return isinstance(kind, types.CPointer) or (isinstance(kind, types.Array) and kind.ndim == 1)


@typing.register_global(operator.getitem)
class GetItem(AbstractTemplate):
    def generic(self, args, kws):
        where, index = args
        return signature(where.dtype, *args) if _one_dimensional(where) and isinstance(index, CInt) else None


@typing.register_global(operator.setitem)
class SetItem(AbstractTemplate):
    def generic(self, args, kws):
        where, index, _ = args
        if _one_dimensional(where) and isinstance(index, CInt):
            return signature(types.none, where, index, where.dtype)
        return None


def _element(context, builder, kind, where, index):
    data = context.make_array(kind)(context, builder, where).data if isinstance(kind, types.Array) else where
    return builder.gep(data, [index], inbounds=True)


@lowering.lower(operator.getitem, types.CPointer, CInt)
@lowering.lower(operator.getitem, types.Array, CInt)
def _load(context, builder, sig, args):
    where = _element(context, builder, sig.args[0], *args)
    return context.unpack_value(builder, sig.return_type, where)


@lowering.lower(operator.setitem, types.CPointer, CInt, types.Any)
@lowering.lower(operator.setitem, types.Array, CInt, types.Any)
def _store(context, builder, sig, args):
    context.pack_value(builder, sig.args[2], args[2], _element(context, builder, sig.args[0], *args[:2]))
    return context.get_dummy_value()


@lowering.lower(min, CInt, CInt)
def _min(context, builder, sig, args):
    a, b = args
    return builder.select(builder.icmp_signed("<", a, b), a, b)


@typing.register_global(min)
class Min(AbstractTemplate):
    def generic(self, args, kws):
        if len(args) == 2 and any(isinstance(kind, CInt) for kind in args) and all(map(_is_int, args)):
            return signature(CINT, CINT, CINT)
        return None
