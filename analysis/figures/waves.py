"""V7 over separate kernels by the number of heads: it wins where these need a wave of blocks more than V7."""

import pandas as pd

from ..evidence import Evidence, computed, measured
from ..models.waves import SEPARATE, V7, held, waves
from ..studies import AUTHORS_SMS, MAIN, matched
from ..tables.table import Missing
from .style import PALETTE, Plot, canvas

DIMS = {2048: {"color": PALETTE[0], "lw": 2, "ms": 5}, 512: {"color": "0.55", "lw": 1, "ms": 3}}


def wave(e: Evidence) -> Plot | Missing:
    """V7's speedup with more and more heads; shaded where separate kernels need a wave more."""
    names = ["hdim", "heads", "blocks", "waves_v7", "waves_separate", "speedup", "low", "high"]
    rows = [
        (
            *(problem.hdim, problem.heads, problem.heads * problem.seq_q),
            *(waves(e, version, problem) for version in (V7, SEPARATE)),
            *(ratio.value, ratio.low, ratio.high),
        )
        for problem, ratio in e.speedup(
            V7, SEPARATE, "waves", "device_warm", problem=e.study("waves").problems("rope")
        ).items()
        if ratio
    ]
    if not rows:
        return Missing.study("waves")
    frame = pd.DataFrame(rows, columns=names).sort_values(["hdim", "heads"])
    most = frame["heads"].max() + 0.6
    v7, separate = (held(e, name, MAIN.hdim)[MAIN.hdim].value / MAIN.seq_q for name in (V7, SEPARATE))
    theirs = {"their shapes": MAIN.heads, "their load": matched(MAIN, e.gpu["sms"]).heads}
    title = f"Up to {frame['heads'].max()} heads, V7 wins in two windows"
    with canvas(title, height=3.5) as (figure, (axis,)):
        for count in range(1, round(most / separate) + 1):
            if separate * count < min(v7 * count, most):
                axis.axvspan(separate * count, min(v7 * count, most), color=PALETTE[1], alpha=0.25, lw=0)
        for hdim, look in DIMS.items():
            mine = frame[frame["hdim"] == hdim]
            axis.plot(mine["heads"], mine["speedup"], "o-", label=f"head dim {hdim}", **look)
        axis.axhline(1, color="black", lw=1)
        for words, heads in theirs.items():
            axis.axvline(heads, color="0.3", lw=1, ls=":")
            axis.text(heads, 1.01, words, ha="center", fontsize=8.5, transform=axis.get_xaxis_transform())
        axis.set_xlim(1.5, most)
        axis.set_xlabel("heads of 64 queries", loc="left")
        axis.set_ylabel("speedup of V7")
        figure.legend(loc="outside lower left", frameon=False, ncols=2, fontsize=8.5)
    return Plot(
        "wave",
        figure,
        "V7 over separate kernels on the GPU alone. Shaded: separate kernels need one wave of blocks more than V7, "
        f"computed from the registers at head dim {MAIN.hdim}. Their load: as many blocks to each of the "
        f"{e.gpu['sms']} SMs as each of the authors' {AUTHORS_SMS} had.",
        "Line of V7's speedup over separate kernels by the number of heads. It rises well above 1 in two shaded "
        "windows and lies near or below 1 elsewhere.",
        frame,
        measured(e, "waves") + computed("waves by the compiler's report"),
    )
