"""Operations that Numba does not expose: tensor cores, asynchronous copies, and half precision in shared memory.

The device functions take arrays and indices in elements, never addresses.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.cuda.extending import intrinsic
from numba.cuda.vector_types import vector_types

FLOAT, HALF, I32, I64, VOID = ir.FloatType(), ir.HalfType(), ir.IntType(32), ir.IntType(64), ir.VoidType()
GLOBAL, SHARED = 1, 3  # LLVM's address spaces
FLOAT4 = vector_types["float32x4"]
FOUR, TWO = types.UniTuple(types.float32, 4), types.UniTuple(types.float32, 2)


def asm(b: Any, text: str, constraints: str, result: Any, args: Sequence[Any] = ()) -> Any:
    """One volatile, convergent PTX statement: the compiler neither drops it nor makes it depend on more conditions."""
    call = b.asm(ir.FunctionType(result, [arg.type for arg in args]), text, constraints, args, side_effect=True)
    call.attributes.add("convergent")
    return call


def pure(b: Any, text: str, constraints: str, result: Any, *args: Any) -> Any:
    """One PTX statement that the compiler may move or drop."""
    return b.asm(ir.FunctionType(result, [a.type for a in args]), text, constraints, list(args), side_effect=False)


def _lowered(context: Any, b: Any, kind: Any, value: Any, cast: bool) -> Any:
    """An argument as `emit` takes it: parts of a tuple or float32x4, a pointer to an array, an index in 64 bits."""
    if isinstance(kind, types.BaseTuple):
        return cgutils.unpack_tuple(b, value)
    if isinstance(kind, types.Array):
        return context.make_array(kind)(context, b, value).data
    if kind == FLOAT4:
        return _fields(context, b, value)
    if not cast and not getattr(kind, "signed", True) and kind.bitwidth < 64:
        return b.zext(value, I64)
    return value


def _fields(context: Any, b: Any, value: Any) -> Iterator[Any]:
    fields = cgutils.create_struct_proxy(FLOAT4)(context, b, value=value)
    yield from (getattr(fields, name) for name in "xyzw")


def _packed(context: Any, b: Any, kind: Any, made: Any) -> Any:
    if kind == types.void:
        return context.get_dummy_value()
    if isinstance(kind, types.BaseTuple):
        return context.make_tuple(b, kind, [_packed(context, b, of, x) for of, x in zip(kind.types, made, strict=True)])
    if kind == FLOAT4:
        fields = cgutils.create_struct_proxy(kind)(context, b)
        for name, x in zip("xyzw", made, strict=True):
            setattr(fields, name, x)
        return fields._getvalue()
    return made


def device_op(result: Any, *kinds: Any, lowered: Callable[..., Any] = _lowered) -> Callable[[Callable[..., Any]], Any]:
    """Make a device function of `emit(builder, *args)`, which returns a value, or a list where `result` is a tuple.

    kinds: the types that the arguments are cast to; None, and those left out, are taken as they are
    """

    def decorate(emit: Callable[..., Any]) -> Any:
        def typed(typingctx: Any, *given: Any) -> Any:
            def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
                each = zip_longest(signature.args, args, kinds)
                made = emit(b, *(lowered(context, b, kind, arg, cast is not None) for kind, arg, cast in each))
                return _packed(context, b, result, made)

            return result(*(kind or own for kind, own in zip_longest(kinds, given))), codegen

        names = ["typingctx", *list(inspect.signature(emit).parameters)[1:]]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        typed.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])  # type: ignore[attr-defined]
        typed.__name__ = typed.__qualname__ = emit.__name__
        return intrinsic(typed)

    return decorate


def statement(text: str) -> Any:
    """A device function without arguments: a PTX statement that accesses to memory are not moved across."""

    @device_op(types.void)
    def execute(b):
        asm(b, text, "~{memory}", VOID)

    return execute


def pointer(b: Any, array: Any, index: Any, element: Any = FLOAT, space: int | None = None) -> Any:
    """A pointer to element `index` of an array, counted in elements of type `element`."""
    place = b.gep(b.bitcast(array, element.as_pointer(array.type.addrspace)), [index], inbounds=True)
    return place if space is None else b.addrspacecast(place, element.as_pointer(space))


def shared_address(b: Any, shared: Any, index: Any) -> Any:
    return b.ptrtoint(pointer(b, shared, index, space=SHARED), I32)


def _mma(b: Any, name: str, kind: str, left: Any, right: Any, total: Any) -> list[Any]:
    text = f"mma.sync.aligned.{name}.row.col.f32.{kind}.{kind}.f32 "
    text += "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};"
    constraints = ",".join(["=f"] * 4 + ["r"] * 6 + ["f"] * 4)
    result = asm(b, text, constraints, ir.LiteralStructType([FLOAT] * 4), [*left, *right, *total])
    return [b.extract_value(result, i) for i in range(4)]


@device_op(FOUR, FOUR, TWO, FOUR)
def mma_m16n8k8_tf32(builder, a, b, c):
    """a b + c of one warp on its tensor cores, for a 16 x 8, b 8 x 8 and c 16 x 8; all 32 lanes must call it.

    With g = l // 4 and m = l % 4, lane l holds the elements (row, column)

      a: (g, m), (g + 8, m), (g, m + 4), (g + 8, m + 4);  b: (m, g), (m + 4, g);
      c and the result: (g, 2m), (g, 2m + 1), (g + 8, 2m), (g + 8, 2m + 1).

    Each fragment is a tuple of float32. The tensor core ignores the low 13 bits of a and b.
    """
    left, right = ([builder.bitcast(value, I32) for value in values] for values in (a, b))
    return _mma(builder, "m16n8k8", "tf32", left, right, c)


@device_op(FOUR, types.UniTuple(types.uint32, 4), types.UniTuple(types.uint32, 2), FOUR)
def mma_m16n8k16_f16(builder, a, b, c):
    """a b + c of one warp on its tensor cores, for a 16 x 16, b 16 x 8 and c 16 x 8; all 32 lanes must call it.

    With g = l // 4 and m = l % 4, lane l holds the elements (row, column)

      a: (g, 2m), (g + 8, 2m), (g, 2m + 8), (g + 8, 2m + 8);  b: (2m, g), (2m + 8, g);
      c and the result: (g, 2m), (g, 2m + 1), (g + 8, 2m), (g + 8, 2m + 1).

    c and the result are tuples of float32. Each element of a and b is a uint32 with the bits of two halves: the listed
    element in the low half and the next element in the high half, which is in the same row of a or the same column of
    b.
    """
    return _mma(builder, "m16n8k16", "f16", a, b, c)


def _start_copy(b: Any, level: str, nbytes: int, elements: Sequence[Any], valid: Any = None) -> None:
    """cp.async between two elements, given as (array, index, array, index); zeros where `valid` is false."""
    if valid is not None and valid.type.width > 1:
        valid = b.trunc(valid, ir.IntType(1))
    shared, index, array, offset = elements
    to, source = pointer(b, shared, index, space=SHARED), pointer(b, array, offset, space=GLOBAL)
    size = [] if valid is None else [b.select(valid, ir.Constant(I32, nbytes), ir.Constant(I32, 0))]
    addresses = [b.ptrtoint(to, I32), b.ptrtoint(source, I64)]
    text = f"cp.async.{level}.shared.global [$0], [$1], {nbytes}{', $2' * len(size)};"
    asm(b, text, f"r,l{',r' * len(size)},~{{memory}}", VOID, [*addresses, *size])


@device_op(types.void)
def cp_async4(b, shared, index, array, offset):
    """Start an asynchronous copy of `array[offset : offset + 4]` in global memory to `shared[index : index + 4]`.

    Both arrays are float32 and both addresses are aligned to 16 bytes. The issuing thread may read the data after
    `cp_async_wait_all`, other threads after a barrier that follows it.
    """
    _start_copy(b, "cg", 16, (shared, index, array, offset))


@device_op(types.void, None, None, None, None, types.boolean)
def cp_async4_or_zero(b, shared, index, array, offset, valid):
    """`cp_async4` where `valid` is true; else the four floats become 0 and nothing is read. One instruction."""
    _start_copy(b, "cg", 16, (shared, index, array, offset), valid)


@device_op(types.void, None, None, None, None, types.boolean)
def cp_async2_or_zero(b, shared, index, array, offset, valid):
    """`cp_async4_or_zero` for two floats, aligned to 8 bytes."""
    _start_copy(b, "ca", 8, (shared, index, array, offset), valid)


# Commit the copies that this thread started since the last commit as one group. Wait for all copies that it started,
# for all groups but the last, or for all groups; the last two do not wait for copies after the last commit.
cp_async_commit = statement("cp.async.commit_group;")
cp_async_wait_all = statement("cp.async.wait_all;")
cp_async_wait_but_one = statement("cp.async.wait_group 1;")
cp_async_wait = statement("cp.async.wait_group 0;")


@device_op(types.float32, types.float32)
def exp2(b, x):
    """2^x of a float32 within 2 units in the last place, in one instruction; results below 2^-126 are flushed to 0."""
    return pure(b, "ex2.approx.ftz.f32 $0, $1;", "=f,f", FLOAT, x)


@device_op(types.void, None, None, types.float32)
def store_half(b, array, index, value):
    """Round a float32 to half precision and store it as the `index`-th half of a float32 array."""
    place = pointer(b, array, index, HALF)
    b.store(b.fptrunc(value, HALF), place, align=2)


@device_op(TWO)
def load_half2(b, array, index):
    """The halves `index` (even) and `index + 1` of a float32 array as two float32, loaded as one half2."""
    place = pointer(b, array, index, HALF)
    loaded = b.load(b.bitcast(place, ir.VectorType(HALF, 2).as_pointer(place.type.addrspace)), align=4)
    return [b.fpext(b.extract_element(loaded, ir.Constant(I32, lane)), FLOAT) for lane in range(2)]
