"""The shape of a decode kernel for wide heads: a head dim spread over the warps of a block, or over a cluster."""

from dataclasses import dataclass, replace

from ...version import SharedLayout
from ..atoms.fma import held
from ..cluster.shape import BARRIER, power_of_two
from ..schedule import WARP, DecodeShape


@dataclass(frozen=True)
class WideShape(DecodeShape):
    """A batch of `batch_rows` keys is read by all threads of a cluster, `chunks` chunks of a key each.

    These threads, `lanes`, are a power of two. rows: any number up to 8. A batch has at most 32 scores, one a lane.
    """

    cluster: int = 1
    chunks: int = 1
    alone: bool = False  # see `of_warp`

    even_splits = False
    row_step = 1  # keys from one of a thread to its next

    @property
    def lanes(self) -> int:
        return WARP if self.alone else self.threads * self.cluster

    @property
    def of_warp(self) -> "WideShape":
        """The shape as a warp sees it, a score a lane: of rows a power of two, the last of which may be none."""
        return replace(self, alone=True, rows=power_of_two(self.rows))

    @property
    def scores(self) -> int:
        """Scores of a batch, at most 32."""
        return held(self.of_warp)

    @property
    def name(self) -> str:
        return f"{super().name.replace('decode_', 'wide_')}_c{self.cluster}_n{self.chunks}"

    @property
    def dims(self) -> int:
        return self.threads * self.cluster * self.element.vector * self.chunks

    @property
    def batch(self) -> int:
        return self.batch_rows

    block_keys = batch

    @property
    def layout(self) -> SharedLayout:
        """Floats of each array: parts are those of two batches' scores by warps, sums those by blocks, in pairs."""
        query, scores = self.rows * self.elements * self.threads, 2 * self.scores
        sums, barriers = (2 * scores * self.cluster, 2 * BARRIER) if self.cluster > 1 else (0, 0)
        return SharedLayout(query=query, weights=self.threads, parts=scores * self.warps, sums=sums, barriers=barriers)
