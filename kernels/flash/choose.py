"""Which kernels serve a request of the ops."""

from ..version import Unsupported
from .call import Call, Request
from .chunks.plan import chosen_chunk
from .decode.choose import MOST_QUERIES
from .decode.plan import decode_call
from .prompts.float32_plan import chosen32
from .prompts.plan import prompt_call


def chosen(request: Request) -> Call | None:
    """The call that serves a request; None where that is V8. Raises: Unsupported in half precision.

    Decode splits keys over blocks and reads them once for a group of heads: it is at least as fast as V8 wherever it
    takes few enough queries. V8 reads keys once a head.
    """
    few = request.problem.seq_q <= MOST_QUERIES
    if request.problem.dtype != "float32":
        return decode_call(request) if few else prompt_call(request)
    try:
        return decode_call(request)
    except Unsupported:
        return chosen_chunk(request) or chosen32(request)
