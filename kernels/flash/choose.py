"""Which kernel runs for a call, and why: TABLE, of which a call takes the first row that covers and takes it.

`python -m kernels which` prints the row of a call, and its launches.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..version import Unsupported
from .call import NAMES, Call, Request
from .chunks.plan import LEAST_CHUNK_KEYS, LEAST_RATIO, chunk_call, pays
from .cluster.call import cluster_call
from .decode.plan import MOST_QUERIES, decode_call
from .prompts.float32_plan import LEAST_ROWS, pays32, prompt32_call
from .prompts.plan import MOST_ROWS, MOST_STAYING_DIMS, Persistent, Split, prompt_call
from .wide.plan import NARROW_DIMS, pays_wide, wide_call

FLOAT32, HALF = ("float32",), ("float16", "bfloat16")
MANY = MOST_QUERIES + 1
ANY = "any"


fastest_prompt = functools.lru_cache(maxsize=1)(prompt_call)  # three rows ask for it, one after the other


def decode(request: Request) -> Call:
    """Split the keys over the blocks of the card; read, and rotate, a key once for all query heads that share it.

    V8 reads keys once a query head. With 32 heads on 8 KV heads, 1 query, 4,096 keys and 128 dims in float32, V8 took
    3.4 times as long on an H100; where no heads share a key, 1.1 times.
    """
    return decode_call(request)


def prompt_split(request: Request) -> Call:
    """Split the keys of a prompt over the card, where tiles of rows are few: on mma.sync up to 64 rows, else on wgmma.

    With 32 heads on 8 KV heads, 64 queries, 16,384 keys and 128 dims in bfloat16, blocks that see all keys took 3.9
    times as long on an H200. Up to 8 queries come here where more than 8 rows share a KV head, or 4 above 128 dims:
    with 16 heads on 2, 5 queries, 3,282 keys and 256 dims, decode took 6.1 times as long, for it reads and rotates a
    key for each 4 of the 40 rows; with 32 heads on 4, 4 queries, 4,096 keys and 128 dims, 1.5 times.
    """
    call = fastest_prompt(request)
    if not isinstance(call, Split):
        template = "blocks that see all keys are as fast for {needed:,} keys"
        raise Unsupported("seq_k", request.problem.seq_k, "more keys", template)
    return call


def wide_decode(request: Request) -> Call:
    """Spread a head dim over the warps of a block or over a cluster, where the lanes of a warp are too few for it.

    With 1 head, 1 query, 14,637 keys and 1,024 dims, V8 took 1.6 times as long on an H200; with 16 sequences, 1,372
    keys and 4,096 dims 2.0 times; with 2 heads, 5 queries, 1,714 keys and 4,096 dims 1.6 times. Several queries of few
    keys stay with V8, which needs no second launch, and up to 2 rows of 512 dims with decode.
    """
    call = wide_call(request)
    if not pays_wide(request):
        raise Unsupported("hdim", request.problem.hdim, "more", "a warp of decode takes all {needed} dims of a key")
    return call


def prompt_persistent(request: Request) -> Call:
    """Give each SM a block that takes tile after tile of queries on wgmma, up to 192 dims.

    Producers rotate the next tile's queries and copy its keys meanwhile. With 32 heads on 8 KV heads, 2,048 queries and
    keys and 128 dims in bfloat16, causal, a block a tile took 1.13 times as long on an H200. A tile is of one head, so
    that 64 queries of each of 32 heads are 32 tiles, half filled; where heads share tiles they are 16.
    """
    call = fastest_prompt(request)
    if not isinstance(call, Persistent):
        template = "blocks of a tile each are as fast for {needed:,} queries"
        raise Unsupported("seq_q", request.problem.seq_q, "more queries", template)
    return call


def prompt(request: Request) -> Call:
    """Multiply tiles on tensor cores, by mma.sync while blocks are few, else by wgmma.

    A launch in front rotates the keys. A block has 32 rows of queries on mma.sync, 128 on wgmma. With 32 heads on 8 KV
    heads, 64 queries are 64 blocks of 32 rows, which 132 SMs run at once; 256 are 256, which wgmma does in 64.
    """
    return fastest_prompt(request)


def chunk(request: Request) -> Call:
    """Split the keys as in decode, on tensor cores, where tiles of queries are few for the keys that there are.

    With 64 heads on 8 KV heads, 9 queries, 16,384 keys and 128 dims, V8 took 1.8 times as long on an H100; with 8
    heads, 64 queries and 512 keys 0.7 times, and runs. V8 takes no lengths of sequences: then chunks run always.
    """
    call = chunk_call(request)
    if not (request.by_length or pays(call)):
        raise Unsupported("seq_k", request.problem.seq_k, "more keys", "V8 is as fast for {needed:,} keys")
    return call


def prompt32(request: Request) -> Call:
    """Split each float32 into two float16 parts, and multiply these by wgmma, where estimates say that V8 is slower.

    With 8 heads, 2,048 queries and keys and 128 dims, V8 took 2.9 times as long on an H100; with 256 of both, 1.06.
    """
    call = prompt32_call(request)
    if not pays32(call):
        raise Unsupported("seq_k", request.problem.seq_k, "more keys", "V8 is as fast for {needed:,} keys")
    return call


def cluster(request: Request) -> Call:
    """Share a head dim of any size among the blocks of a cluster, or stream it: what nothing above takes.

    With 4 heads, 64 queries and keys and 2,048 dims, a cluster of 8 blocks has a tile of 24 queries, and each block 256
    of the dims.
    """
    return cluster_call(request)


class Rule(NamedTuple):
    """A row: the kernel for calls of these dtypes with `least` to `most` queries a head, if `choose` takes them.

    What `choose` asks beside is told in words: `when`, and which compute capability.
    """

    kernel: str
    dtypes: tuple[str, ...]
    least: int
    most: int | None
    when: str
    capability: str
    choose: Callable[[Request], Call]

    def covers(self, request: Request) -> bool:
        p = request.problem
        return p.dtype in self.dtypes and self.least <= p.seq_q and (self.most is None or p.seq_q <= self.most)

    def call(self, request: Request) -> Call:
        """The call that `choose` makes, of which a GPU takes the grids. Raises: Unsupported."""
        call = self.choose(request)
        call.launches(NAMES, request.problem.seq_k)
        return call

    @property
    def queries(self) -> str:
        return f"{self.least} to {self.most}" if self.most else f"{self.least} or more"

    @property
    def reason(self) -> str:
        return " ".join(inspect.cleandoc(self.choose.__doc__ or "").split())


SPLITS = (
    f"up to {MOST_QUERIES} queries: more than {MOST_ROWS[128]} rows a KV head (above 128 dims: more than "
    f"{MOST_ROWS[256]}); more queries: where by estimates split keys are faster"
)
STAYS = f"up to {MOST_STAYING_DIMS} dims, where by estimates large tiles pay"
WIDE = f"more than {NARROW_DIMS} dims; or more than {NARROW_DIMS // 2}, and more than 2 rows a KV head"
CHUNKS = f"{LEAST_CHUNK_KEYS} keys, and {LEAST_RATIO} a query, or more, "
SLOWER = "where by estimates V8 is slower"
TABLE = (
    Rule("prompt_split", HALF, 1, None, SPLITS, "8.0 or more", prompt_split),
    Rule("decode", HALF, 1, MOST_QUERIES, ANY, "8.0 or more", decode),
    Rule("prompt_persistent", HALF, MANY, None, STAYS, "9.0", prompt_persistent),
    Rule("prompt", HALF, MANY, None, ANY, "8.0 or more", prompt),
    Rule("wide_decode", FLOAT32, 1, MOST_QUERIES, WIDE, "9.0 or more", wide_decode),
    Rule("decode", FLOAT32, 1, MOST_QUERIES, ANY, ANY, decode),
    Rule("chunk", FLOAT32, MANY, None, CHUNKS + SLOWER, "8.6 or more", chunk),
    Rule("prompt32", FLOAT32, LEAST_ROWS, None, f"{LEAST_ROWS} keys or more, {SLOWER}", "9.0", prompt32),
    Rule("cluster", FLOAT32, 1, None, ANY, ANY, cluster),
)


def considered(request: Request) -> Iterator[tuple[Rule, Call | Unsupported]]:
    """The rows that cover a request, in order, each with its refusal; and the one that takes it, with its call."""
    for rule in TABLE:
        if rule.covers(request):
            try:
                yield rule, rule.call(request)
                return
            except Unsupported as refusal:
                yield rule, refusal


def chosen(request: Request) -> Call:
    """The call that serves a request. Raises: Unsupported, as the last row that covers it."""
    *_, (_, found) = considered(request)
    if isinstance(found, Unsupported):
        raise found
    return found
