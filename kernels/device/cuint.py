"""`cuint`: the unsigned int of CUDA C++ inside a kernel: 32 bits that wrap.

Numba computes integers in 64 bits. An operation of a `cuint` with an integer of Numba gives a `cuint`; it does not
promise, as `cint` does, that it never overflows. So compilers hoist less out of loops, and registers suffice for more.
"""

import operator
from typing import Any

from numba import types
from numba.cuda import models
from numba.cuda.cudaimpl import registry as lowering
from numba.cuda.extending import intrinsic, register_model
from numba.cuda.typing.templates import signature

from .cint import WORD, CInt


class CUInt(CInt):
    signed = False

    def __init__(self) -> None:
        types.Number.__init__(self, "cuint")

    def computes(self, functions: tuple[Any, ...], result: Any, emit: Any, arguments: int = 2) -> None:
        """`emit(builder, *args)` generates the code of functions of two integers of which at least one is a cuint."""

        def rule(args: Any) -> Any:
            ints = len(args) == 2 and all(kind == CUINT or isinstance(kind, types.Integer) for kind in args)
            return signature(result, CUINT, CUINT) if ints and CUINT in args else None

        for function in functions:
            self.infers(function, rule)
            lowering.lower(function, CUInt, CUInt)(lambda context, builder, sig, args: emit(builder, *args))


CUINT = CUInt()


@intrinsic
def cuint(typingctx, value):
    """The low 32 bits of `value`, an integer of any width, as a cuint."""

    def codegen(context, builder, signature, args):
        return context.cast(builder, args[0], signature.args[0], CUINT)

    return CUINT(value), codegen


@register_model(CUInt)
class Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: CUInt) -> None:
        super().__init__(manager, kind, WORD)


@lowering.lower_cast(CUInt, types.Integer)
@lowering.lower_cast(CUInt, CInt)
@lowering.lower_cast(CInt, CUInt)
def to_integer(context, builder, source, target, value):
    kind = context.get_value_type(target)
    if kind.width < WORD.width:
        return builder.trunc(value, kind)
    return value if kind == WORD else builder.zext(value, kind)


@lowering.lower_cast(CUInt, types.Float)
def to_float(context, builder, source, target, value):
    return builder.uitofp(value, context.get_value_type(target))


CUINT.computes((operator.add, operator.iadd), CUINT, lambda builder, a, b: builder.add(a, b))
CUINT.computes((operator.sub, operator.isub), CUINT, lambda builder, a, b: builder.sub(a, b))
CUINT.computes((operator.mul, operator.imul), CUINT, lambda builder, a, b: builder.mul(a, b))
CUINT.computes((operator.floordiv, operator.ifloordiv), CUINT, lambda builder, a, b: builder.udiv(a, b))
CUINT.computes((operator.mod, operator.imod), CUINT, lambda builder, a, b: builder.urem(a, b))
CUINT.computes((operator.and_, operator.iand), CUINT, lambda builder, a, b: builder.and_(a, b))
CUINT.computes((operator.or_, operator.ior), CUINT, lambda builder, a, b: builder.or_(a, b))
CUINT.computes((operator.xor, operator.ixor), CUINT, lambda builder, a, b: builder.xor(a, b))
CUINT.computes((operator.rshift, operator.irshift), CUINT, lambda builder, a, b: builder.lshr(a, b))
CUINT.computes((min,), CUINT, lambda builder, a, b: builder.select(builder.icmp_unsigned("<", a, b), a, b))
CUINT.computes((operator.eq,), types.boolean, lambda builder, a, b: builder.icmp_unsigned("==", a, b))
CUINT.computes((operator.ne,), types.boolean, lambda builder, a, b: builder.icmp_unsigned("!=", a, b))
CUINT.computes((operator.lt,), types.boolean, lambda builder, a, b: builder.icmp_unsigned("<", a, b))
CUINT.computes((operator.le,), types.boolean, lambda builder, a, b: builder.icmp_unsigned("<=", a, b))
CUINT.computes((operator.gt,), types.boolean, lambda builder, a, b: builder.icmp_unsigned(">", a, b))
CUINT.computes((operator.ge,), types.boolean, lambda builder, a, b: builder.icmp_unsigned(">=", a, b))
