"""V8 as a call of the op: the launches that are fastest by the rule, on tensors of any strides."""

from dataclasses import dataclass
from typing import Any

from ...constants import FLOATS, require
from ...limits import capability
from ...version import Buffer, Launch
from ..call import Call, Request
from ..decode.plan import MOST_QUERIES
from . import WARPGROUPS_ON, attend, combined, hybrid, workspace
from .alibi import ALIBI
from .embedding import PLAIN, require_problem
from .rope import mode
from .wgmma.choose import fastest, takes

VERSIONS = {"rope": "rope_v8", "attention": "attention_v8", "alibi": "alibi_v1"}  # by family
HALVES = 8  # dims, of a head and of its pairs, that half-split pairs are a multiple of
ROTATION = {  # by embedding, the arguments that a kernel's table consists of
    "rates": ("rates",),
    "positions": ("rates", "positions", "batch"),
    "tables": ("cos", "sin", "pitch", "rows"),
    "placed_tables": ("cos", "sin", "pitch", "rows", "positions", "batch"),
}


@dataclass(frozen=True)
class Cluster(Call):
    """Launches planned for the keys of the request; a call may have fewer.

    A launch in front embeds K where many tiles of queries share it; one behind combines keys that are split.
    """

    name, any_keys = "cluster", False

    made: tuple[Launch, ...] = ()

    @property
    def version(self) -> str:
        return "rope_hybrid_v8" if "k_embedded" in self.buffers(0) else VERSIONS[self.of.problem.family]

    @property
    def half_split(self) -> bool:
        return halves_of(self.of)

    @property
    def turns(self) -> None:
        return None

    def alike(self, seq_k: int) -> None:
        return None

    def sizes(self, seq_k: int, q_offset: int, lengths: Any) -> tuple[Any, ...]:
        """As of other calls, of which the kernels read `seq_k`, `q_offset` and `scale`; here without log2(e)."""
        return (0, 0, 0, seq_k, 0, 0, 0, 0, q_offset, 0, self.of.scale, 0, 0)

    def buffers(self, seq_k: int) -> dict[str, Buffer]:
        return {name: Buffer(shape) for name, shape in workspace(self.of.problem, self.made).items()}

    def launches(self, args: tuple[Any, ...], seq_k: int) -> tuple[Launch, ...]:
        """Their arguments are names of `args`, and numbers."""
        return self.made


def halves_of(request: Request) -> bool:
    """Whether kernels take half-split pairs as they are."""
    p = request.problem
    return request.half_split and p.rotary_dim % HALVES == 0 and p.hdim % HALVES == 0


def cluster_call(request: Request) -> Cluster:
    """The call on the core that is made for it. Raises: Unsupported where no core takes it."""
    p, target, share = request.problem, request.target, request.share
    template = "lengths are taken with up to {allowed} queries, or where keys are split; this call has {needed} queries"
    require(not request.by_length, "seq_q", p.seq_q, MOST_QUERIES, template)
    require_problem(p, p.family)
    embedding, table_type, table = PLAIN, FLOATS, ROTATION.get(request.embedding, ("q",))
    if request.embedding == "alibi":
        embedding, table = ALIBI, ("slopes",)
    elif p.rotary_dim:
        tables, positions = "tables" in request.embedding, "batch" in table
        embedding, table_type = mode(tables, positions, halves_of(request), p.rotary_dim)
    how: Any = (p, embedding, table, p.rotary_dim)
    options: Any = {"target": target, "share": share, "table_type": table_type, "by_name": True}
    may = capability(target) == WARPGROUPS_ON and embedding.keys and takes(p, share)
    before = may and fastest(p, p.rotary_dim, share)[0]
    launches = hybrid(*how, **options) if before else (attend(*how, **options),)
    return Cluster(launches[-1].shape, request, combined(p, *launches, by_name=True))
