"""Sinusoidal V5 beside two baselines, by the authors' own times and by ours: four floats a load make the difference."""

import pandas as pd

from ..evidence import Evidence, measured, published_on
from ..findings.loads import FLOAT4, PRINTED, SCALAR, V5, own
from ..record import published
from ..record.text import factor
from ..studies import SLICE, SLICES, THEIR_CLOCK, THEIR_SMS
from .style import FUSED, Plot, canvas, legend

LOOKS = {
    SCALAR: ("over kernels that load one float", {"facecolor": "white", "edgecolor": FUSED, "lw": 1.4}),
    FLOAT4: ("over kernels that load four", {"facecolor": FUSED, "edgecolor": FUSED, "lw": 1.4}),
}


def loads(e: Evidence) -> Plot:
    """V5's speedup over scalar and over float4 separate kernels, a panel for each card."""
    panels = {"their card,\ntheir clock": {over: own(V5, over) for over in LOOKS}}
    for name, condition in (("their SMs,\ntheir clock", THEIR_CLOCK), ("their SMs,\nthe GPU alone", THEIR_SMS)):
        panels[name] = {over: e.under(condition).speedup(V5, over, hdim=PRINTED) for over in LOOKS}
    rows = [
        (panel, hdim, over, found[over][hdim].value)
        for panel, found in panels.items()
        for hdim in PRINTED
        for over in LOOKS
    ]
    frame = pd.DataFrame(rows, columns=["panel", "hdim", "baseline", "speedup"])
    title = "The 2x vanishes against float4 loads"
    with canvas(title, 1, 3, height=3.1, sharex=True, sharey=True) as (figure, axes):
        for axis, panel in zip(axes, panels):
            mine = frame[frame["panel"] == panel]
            for place, (over, (label, look)) in enumerate(LOOKS.items()):
                values = mine[mine["baseline"] == over]["speedup"].tolist()
                at = [group + 0.45 * place for group in range(len(values))]
                axis.bar(at, values, 0.36, label=label, **look)
                for x, value in zip(at, values):
                    text, top = factor(value).removesuffix("×"), max(value, 1.02)  # the line at 1 crosses no number
                    axis.annotate(text, (x, top), (0, 2.5), textcoords="offset points", ha="center", fontsize=6.8)
            axis.axhline(1, color="black", lw=1)
            axis.set_xticks([group + 0.22 for group in range(len(PRINTED))], list(map(str, PRINTED)))
            axis.set_title(panel, loc="left", fontsize=9)
            axis.grid(visible=False)
            axis.set_ylim(0, 2.6)
        axes[0].set_ylabel("speedup of V5")
        axes[0].set_xlabel("head dim", loc="left")
        legend(figure, axes[:1], size=8.5)
    return Plot(
        "loads",
        figure,
        f"Fused sinusoidal V5 over separate kernels; above 1 V5 is faster. The first panel is by the authors' times on "
        f"the {published.card('sinusoidal')}, the others by ours on {SLICE} SMs of the {e.card}. "
        "Theirs follow from times that one of their programs printed; the write-up rounds them.",
        "Bars of V5's speedup at three head dims in three panels. Over kernels that load one float it is well above 1, "
        "over kernels that load four near 1 or below.",
        frame,
        measured(e, SLICES) + published_on("sinusoidal"),
    )
