"""When to fuse: the fastest of three versions of one core, by keys and heads."""

from __future__ import annotations

from typing import Any

import pandas as pd

from ..evidence import Evidence
from ..evidence.origin import measured
from ..models import fusion
from ..models.advice import CORE_KEYS, MANY_HEADS, kv_heads
from ..models.targets import MEASURED_IN, beside_one_graph
from ..tables.table import Missing
from .style import PALETTE, Plot, canvas, legend

OUTCOMES: dict[str, dict[str, Any]] = {
    fusion.ALONE: {"color": PALETTE[0], "marker": "o"},
    fusion.TIES: {"color": PALETTE[7], "marker": "D", "markerfacecolor": "white"},
    fusion.LOSES: {"color": PALETTE[1], "marker": "s"},
}
BEATEN = {"marker": "o", "markerfacecolor": "none", "color": "0.1", "label": "PyTorch is faster than full fusion"}
CELL = 0.23  # between marks of the same keys and heads


def fusion_map(e: Evidence) -> Plot | Missing:
    """Where full fusion is the fastest of the family, ties or loses, by keys and by heads of K and V; and where it
    loses to the fastest peer, of those problems that have one."""
    rows, peers = [], beside_one_graph(e)
    for problem in fusion.problems(e):
        times = {version: us.value for version, us in fusion.times(e, problem).items()}
        best, second = sorted(times, key=times.__getitem__)[:2]
        rows.append(
            {
                "problem": str(problem),
                "keys": problem.seq_k,
                "kv_heads": kv_heads(problem),
                "winner": best,
                "margin": times[second] / times[best],
                "outcome": fusion.outcome(fusion.winners(e, problem)),
                "peer": peers[problem].version if problem in peers else None,
                "peer_over_full": peers[problem].over.value if problem in peers else None,
                "beaten": problem in peers and peers[problem].faster,
            }
        )
    if not rows:
        return Missing.study("map")
    frame = pd.DataFrame(rows).sort_values(["keys", "kv_heads", "outcome"], kind="stable")
    keys, heads = (sorted(frame[name].unique()) for name in ("keys", "kv_heads"))
    cells = frame.groupby(["keys", "kv_heads"])
    beside, abreast = cells.cumcount(), cells["keys"].transform("size").clip(upper=4)
    x = frame["keys"].map(keys.index) + CELL * (beside % 4 - (abreast - 1) / 2)
    y = frame["kv_heads"].map(heads.index) + CELL * (beside // 4)
    tile = sum(count <= CORE_KEYS for count in keys) - 0.5
    few = sum(count < MANY_HEADS for count in heads) - 0.5
    with canvas("Full fusion wins with few keys, and mostly with many heads", height=4.4) as (figure, (axis,)):
        axis.set(xlim=(-0.6, len(keys) - 0.4), ylim=(-0.6, len(heads) - 0.3))
        axis.axvline(tile, color="0.4", lw=1)
        axis.plot([tile, len(keys)], [few] * 2, color="0.4", lw=1)
        for rule, place in (
            ("1", (-0.5, few)),
            ("2", (tile + 0.1, len(heads) - 0.75)),
            ("3", (tile + 0.1, few - 0.45)),
        ):
            axis.text(*place, rule, fontsize=13, color="0.4", fontweight="bold", va="center")
        for name, look in OUTCOMES.items():
            mine = frame["outcome"] == name
            axis.plot(x[mine], y[mine], ls="", ms=5.5, zorder=3, label=name, **look)
        if frame["beaten"].any():
            axis.plot(x[frame["beaten"]], y[frame["beaten"]], ls="", ms=11, **BEATEN)
        axis.set_xticks(range(len(keys)), keys)
        axis.set_yticks(range(len(heads)), heads)
        axis.set(xlabel=f"keys; {e.card}", ylabel="batch × heads of K and V")
        legend(figure, [axis])
    return Plot(
        "fusion-map",
        figure,
        f"Three versions of one core on {len(frame)} problems, device_warm on the {e.card}; a mark is a "
        "problem. Areas 1 to 3 are the rules above; rings are rule 4, which also covers problems not drawn. Two tie "
        f"if their times differ by less than 3 %, or by less than the 95 % interval {e.covers()}.",
        "Dot plot by the number of keys and of heads of K and V: where full fusion is fastest, ties, and loses.",
        frame,
        measured(e, "map", *MEASURED_IN),
    )
