"""Kernels beyond the documents, registered: V8 and its variants, decode, prompts, chunks, Phase 7, other embeddings.

All planners raise Unsupported. Source: beyond the documents.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from ..constants import require
from ..rates import require_table, slopes_of
from ..version import Buffer, Plan, Problem, register
from .call import Call, Request, flash_plan
from .chunks.plan import chunk_call
from .cluster import Operands, attend, embed_rows, hybrid, plan, require_problem
from .cluster.alibi import ALIBI
from .cluster.mma.core import attend as attend_by_warps
from .cluster.portable.core import attend as attend_anywhere
from .cluster.rope import ROPE, of_pairs, rates_buffer
from .cluster.sinusoidal import SINUSOIDAL
from .cluster.table import add_rows
from .decode.plan import decode_call
from .prompts.float32_plan import prompt32_call
from .prompts.plan import persistent_call, prompt_plan, split_call, whole_call
from .wide.plan import wide_call


@register(
    title="Head dim over a cluster", parent="attention_online_fixed", baseline="attention_online_fixed", beyond=True,
    variant_of="rope_v8",
    change="a cluster shares the head dim and sums the scores in shared memory; TF32 tensor cores, three products",
)  # fmt: skip
def attention_v8(problem: Problem, target: str) -> Plan:
    """Plan float32 attention on the V8 core for the target.

    The core is kernels/flash/cluster, instead of one thread per key.
    """
    require_problem(problem, "attention")
    return plan(problem, attend(problem, target=target))


@register(
    title="Full fusion over a cluster", parent="rope_v7", baseline="rope_separate", beyond=True,
    change="one launch; a cluster shares the head dim; K is rotated once a query tile; TF32 tensor cores",
)  # fmt: skip
def rope_v8(problem: Problem, target: str) -> Plan:
    """Plan float32 RoPE attention on the V8 core for the target.

    The core is kernels/flash/cluster, instead of one thread per key; each block has a slice of the dims. K is rotated
    between its load and its product. Where few queries meet many keys, clusters share the keys, and a second launch
    combines their parts.
    """
    require_problem(problem, "rope")
    launch = attend(problem, of_pairs(ROPE, problem.rotary_dim), "rates", problem.rotary_dim, target=target)
    return plan(problem, launch, rates=rates_buffer(problem.rotary_dim))


@register(
    title="Full fusion over a cluster, by warps", parent="rope_v8", baseline="rope_v8", beyond=True,
    change="mma.sync of single warps in place of wgmma",
)  # fmt: skip
def rope_v8_mma(problem: Problem, target: str) -> Plan:
    """Plan float32 RoPE attention on compute capability 9.0 and up.

    The core of kernels/flash/cluster/mma serves every problem. It runs on every GPU with clusters; that of
    kernels/flash/cluster/wgmma runs on compute capability 9.0 only.
    """
    require_problem(problem, "rope")
    launch = attend_by_warps(problem, of_pairs(ROPE, problem.rotary_dim), "rates", problem.rotary_dim, target=target)
    return plan(problem, launch, rates=rates_buffer(problem.rotary_dim))


@register(
    title="Full fusion on every GPU", parent="rope_v8", baseline="rope_separate", beyond=True,
    change="no cluster and no tensor cores: a block streams K and V through registers, K is rotated once a query tile",
)  # fmt: skip
def rope_v8_portable(problem: Problem) -> Plan:
    """Plan float32 RoPE attention on compute capability 7.5 and up.

    A block of kernels/flash/cluster/portable computes the whole head dim of its tile of queries.
    """
    require_problem(problem, "rope")
    launch = attend_anywhere(problem, of_pairs(ROPE, problem.rotary_dim), "rates", problem.rotary_dim)
    return plan(problem, launch, rates=rates_buffer(problem.rotary_dim))


@register(
    title="Separate, then attention over a cluster", parent="rope_v8", baseline="rope_v8", beyond=True,
    variant_of="rope_v8",
    change="Q and K are rotated by launches of their own, through global memory; the core is the same",
)  # fmt: skip
def rope_separate_v8(problem: Problem, target: str) -> Plan:
    """Plan float32 RoPE attention on the V8 core for the target."""
    require_problem(problem, "rope")
    call = Operands(problem, of_pairs(ROPE, problem.rotary_dim), "rates", problem.rotary_dim)
    attention = attend(problem, q="q_embedded", k="k_embedded", target=target)
    buffers = {"rates": rates_buffer(problem.rotary_dim), "q_embedded": Buffer(problem.q_shape)}
    return plan(problem, embed_rows(call, "q"), embed_rows(call, "k"), attention, **buffers)


@register(
    title="Hybrid, attention over a cluster", parent="rope_v8", baseline="rope_separate_v8", beyond=True,
    variant_of="rope_v8", change="K is rotated by a launch of its own; Q inside; the core is the same",
)  # fmt: skip
def rope_hybrid_v8(problem: Problem, target: str) -> Plan:
    """Plan float32 RoPE attention on the V8 core for the target.

    A kernel rotates K before the attention, as in rope_v7; on wgmma the attention starts meanwhile.
    """
    require_problem(problem, "rope")
    dims = problem.rotary_dim
    launches = hybrid(problem, of_pairs(ROPE, dims), "rates", dims, target=target)
    return plan(problem, *launches, rates=rates_buffer(dims))


Choose = Callable[[Request], Call]


def of_call(name: str, choose: Choose, title: str, change: str, told: str = "", **fields: Any) -> None:
    """Register the version `name`, whose kernels are those that `choose` takes; `told` is more about it."""
    family = name.partition("_")[0]

    def planned(problem: Problem, target: str) -> Plan:
        require(problem.family == family, "family", problem.family, family)
        return flash_plan(choose, problem, target)

    planned.__name__ = planned.__qualname__ = name
    planned.__doc__ = f"{title}.\n\n{told}"
    register(title=title, change=change, beyond=True, **fields)(planned)


def of_both(name: str, choose: Choose, title: str, parent: str, rope: str, attention: str, told: str) -> None:
    """Register rope_<name> and attention_<name>, with their changes from those of `parent`."""
    fields = {"parent": f"rope_{parent}", "baseline": "rope_separate"}
    of_call(f"rope_{name}", choose, title, rope, told, **fields)
    fields = {"parent": f"attention_{parent}", "baseline": "attention_online_fixed", "variant_of": f"rope_{name}"}
    of_call(f"attention_{name}", choose, title, attention, **fields)


of_both(
    "decode", decode_call, "Split keys for decode", "v8",
    "keys split over blocks; a key is read and rotated once for all query heads that share it",
    "keys split over blocks; a key is read once for all query heads that share it",
    "A second launch combines the splits. Keys are rotated on their way to the product by a recurrence with exact "
    "seeds.",
)  # fmt: skip
SPREAD = "a head dim spread over the warps of a block, or over a cluster; parts of scores are added in shared memory"
of_both(
    "wide_decode", wide_call, "Wide heads in decode", "decode", SPREAD, SPREAD,
    "All warps of a block, or of a cluster, take the same keys, each warp its own dims.",
)  # fmt: skip
of_both(
    "prompt", whole_call, "Prompts in half precision", "v8",
    "half precision on mma.sync or wgmma; keys rotated by a launch before, which the second overlaps",
    "half precision on mma.sync or wgmma",
    "Queries are rotated as they are loaded.",
)  # fmt: skip
of_both(
    "prompt_persistent", persistent_call, "Prompts by blocks that stay", "prompt",
    "a block takes tile after tile; producers rotate the next queries meanwhile; the mask leaves the loop",
    "a block takes tile after tile; the mask leaves the loop",
    "On compute capability 9.0, up to 192 dims.",
)  # fmt: skip
of_both(
    "prompt_split", split_call, "Split keys for prompts", "prompt",
    "keys split over blocks, which rotate them on mma.sync; a launch behind combines the parts",
    "keys split over blocks; a launch behind combines the parts",
    "Parts are combined as in rope_decode. On mma.sync a block rotates its keys in shared memory, once for up to 64 "
    "rows of queries.",
)  # fmt: skip
of_call(
    "rope_prompt32", prompt32_call, "Prompts in float32 on wgmma",
    "two float16 parts of each float32, made and rotated by a launch before; three products on wgmma",
    parent="rope_prompt", baseline="rope_separate",
)  # fmt: skip
of_call(
    "rope_chunk", chunk_call, "Split keys for chunks of queries",
    "tiles of keys and values that warps share, rotated in shared memory; three products on TF32 tensor cores",
    parent="rope_decode", baseline="rope_separate",
)  # fmt: skip


PHASE_7 = 'Phase 6 Status Report, "What Would Actually Help", tensor cores'
ALONE: dict[str, Any] = {"wgmma": False, "stages": 1, "ahead": 0}  # a tile is asked for when it is needed


def _plan(problem: Problem, target: str, **fields: Any) -> Plan:
    require(problem.dtype == "float16", "dtype", problem.dtype, "float16")
    return prompt_plan(problem, target, overlap=False, **fields)


@register(
    title="Phase 7a: scores on tensor cores", parent="fp16_phase4", baseline="fp16_phase4", beyond=True,
    source=PHASE_7, iterations=100,
    change="scores by mma.sync, which leaves them in registers, and with them the softmax; eight warps",
)  # fmt: skip
def fp16_phase7a(problem: Problem, target: str) -> Plan:
    """Plan float16 attention.

    The tile kernel is that of `flash.prompts.mma`: 32 query rows a block, as in Phase 4; two warps share the rows and
    four the keys of a tile, 128 or 256 at a time. Scores are fragments in a warp's registers, and the online softmax is
    of these; the warps' results are merged at the end.
    """
    return _plan(problem, target, **ALONE, weigh="fma")


@register(
    title="Phase 7b: both products on tensor cores", parent="fp16_phase7a", baseline="fp16_phase4", beyond=True,
    source=PHASE_7, iterations=100, change="the weighted sum by mma.sync, of weights as they lie in registers",
)  # fmt: skip
def fp16_phase7b(problem: Problem, target: str) -> Plan:
    """Plan float16 attention."""
    return _plan(problem, target, **ALONE)


@register(
    title="Phase 7c: tiles are copied ahead", parent="fp16_phase7b", baseline="fp16_phase4", beyond=True,
    source=PHASE_7, iterations=100,
    change="two or three tiles of keys and values in shared memory, asked for before they are needed",
)  # fmt: skip
def fp16_phase7c(problem: Problem, target: str) -> Plan:
    """Plan float16 attention."""
    return _plan(problem, target, wgmma=False)


@register(
    title="Phase 7d: wgmma", parent="fp16_phase7c", baseline="fp16_phase4", beyond=True, source=PHASE_7, iterations=100,
    change="wgmma and tensor maps: 128 query rows a block, scores of a tile started with the sum of the one before",
)  # fmt: skip
def fp16_phase7d(problem: Problem, target: str) -> Plan:
    """Plan float16 attention on compute capability 9.0.

    The kernel is that of `flash.prompts.wgmma`.
    """
    return _plan(problem, target, wgmma=True)


@register(
    title="Full fusion over a cluster", parent="sinusoidal_v5", baseline="sinusoidal_separate_float4", beyond=True,
    variant_of="rope_v8",
    change="one launch; a cluster shares the head dim, K is embedded once a query tile; TF32 tensor cores",
)  # fmt: skip
def sinusoidal_v6(problem: Problem, target: str) -> Plan:
    """Plan float32 attention with sinusoidal embeddings, computed or from a table.

    The core is kernels/flash/cluster, instead of one thread per key. K is embedded between its load and its product;
    where there are many tiles of queries, all blocks embed it once together. The embedding uses frequencies without
    powf, or a table.
    """
    require_problem(problem, "sinusoidal")
    if problem.table != "computed":
        return add_rows(problem, target)
    launch = attend(problem, SINUSOIDAL, "rates", problem.hdim, target=target)
    return plan(problem, launch, rates=rates_buffer(problem.hdim))


@register(
    title="Bias over a cluster", parent="attention_v8", beyond=True, variant_of="rope_v8",
    change="a bias by distance on the scores",
)  # fmt: skip
def alibi_v1(problem: Problem, target: str) -> Plan:
    """Plan float32 attention with linear biases.

    Each score gets -slope * |query position - key position|; Q and K are not embedded.
    """
    require_problem(problem, "alibi")
    require_table(problem)
    slopes = Buffer((problem.batch * problem.heads,), init=partial(slopes_of, problem.batch, problem.heads))
    return plan(problem, attend(problem, ALIBI, "slopes", target=target), slopes=slopes)


@register(
    title="Full fusion over a cluster", parent="sinusoidal_v6", beyond=True, variant_of="rope_v8",
    change="rows of a table of float32, halves or float8 in place of sines",
)  # fmt: skip
def learned_v1(problem: Problem, target: str) -> Plan:
    """Plan float32 attention with the problem's learned `table`."""
    require_problem(problem, "learned")
    return add_rows(problem, target)
