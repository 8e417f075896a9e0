"""V7's speedups under every condition; how many blocks of V7 and of separate kernels cards hold, and where one needs a
wave less; what the slider of waves begins with."""

import json
from html import escape

from ..evidence import Evidence, computed, measured, published_on
from ..findings import printed
from ..findings.wave import by_heads
from ..models.waves import CARDS, LOG_BLOCKS, SEPARATE, V7, Card, ahead, compiled
from ..record.text import NOTHING, factor
from ..studies import (
    AUTHORS_SMS,
    AUTHORS_TARGET,
    CLOCK,
    DEVICE,
    MAIN,
    SLICE,
    SLICES,
    THEIR_CLOCK,
    THEIR_SMS,
    partial_rope,
)
from .table import Table, lines, ratio, small, speedup_cell


def conditions(e: Evidence) -> Table:
    """V7 over separate kernels by head dim: printed, by both clocks on their SMs and on the whole card, and full."""
    asked = {name: e.under(name) for name in (THEIR_CLOCK, THEIR_SMS, CLOCK, DEVICE)}
    rows = []
    for hdim in (128, 512, 2048):
        problem = partial_rope(1, 4, 64, hdim)
        gains = (of.speedup(V7, SEPARATE, problem=problem)[problem] for of in asked.values())
        full = speedup_cell(e, V7, SEPARATE, partial_rope(8, 16, 64, hdim), "filled")
        said = factor(printed(V7, hdim=(hdim,))[hdim].value)
        rows.append((str(hdim), said, *(ratio(gain) if gain else NOTHING for gain in gains), full))
    names = (name.replace(", ", ",<br>") for name in (*asked, f"128 heads, {DEVICE}"))
    header = ("head dim", "printed", *names)
    caption = "Speedup of V7 over separate kernels, float32; above 1 V7 is faster. Small: 95 % intervals."
    source = measured(e, "log", SLICES, "filled") + published_on("rope")
    return Table(header, rows, header[1:], caption, id="v7", source=source, title="V7 over separate kernels")


def slider(e: Evidence) -> str:
    """HTML in which the script waves.js puts the slider of waves, with the authors' shape and card, and the measured
    ratios by SMs and heads; nothing is seen without the script.
    """
    registers = [compiled(e, name, "registers", AUTHORS_TARGET) for name in (V7, SEPARATE)]
    by_sms = {SLICE: by_heads(e), int(e.gpu["sms"]): by_heads(e, study="waves")}
    found = {
        f"{sms} {heads}": round(gain.value, 2)
        for sms, gains in by_sms.items()
        for heads, gain in gains.items()
        if gain
    }
    begins = {"sms": AUTHORS_SMS, "heads": MAIN.heads, "registers": registers, "measured": found}
    return f"<div class='waves' data-begins='{escape(json.dumps(begins), quote=True)}'></div>"


def by_card(e: Evidence) -> Table:
    """Blocks and waves by card, as our build for each has registers."""
    header = ("GPU", "SMs", "registers", "blocks an SM", "at once", "windows, heads", "256 blocks")
    caption = (
        f"Pairs are V7 / separate kernels: attention at head dim {MAIN.hdim}, in our build; another compiler may give "
        f"other registers. Windows: the first two ranges of heads, of {MAIN.seq_q} queries each, at which "
        "separate kernels need one wave more than V7. Registers are allotted in steps of eight a thread. 256 blocks: "
        "their shapes. SMs by NVIDIA's data sheets. Waves are "
        "computed; times were measured on the H200 and the H100 alone."
    )
    source = computed("from the compiler's report and the SMs of each card")
    own = [card for card in CARDS if (card.target, card.sms) == (e.target, e.gpu["sms"])]
    cards = CARDS if own else (*CARDS, Card(e.card, e.target, int(e.gpu["sms"])))
    marked = own or cards[-1:]
    word = small("this book's card" if e.record.is_reference else "your card")
    rows = [(lines(card.name, word * (card in marked)), *_row(e, card)) for card in cards]
    caption += " Reversed: V7 needs one more." * any("reversed" in cell for row in rows for cell in row)
    return Table(header, rows, header[1:], caption, source=source, title="Where V7 needs a wave less, card by card")


def _row(e: Evidence, card: Card) -> tuple[str, ...]:
    """All cells but the first."""
    registers, an_sm = (
        [compiled(e, name, column, card.target) for name in (V7, SEPARATE)] for column in ("registers", "blocks_per_sm")
    )
    v7, separate = (blocks * card.sms for blocks in an_sm)
    windows, turned = ahead(v7, separate), ahead(separate, v7)
    if windows:
        where = ", ".join(map(_heads, windows))
    else:
        where = lines("none", small(f"reversed {', '.join(map(_heads, turned))}") if turned else "")
    v7_waves, others = (-(-LOG_BLOCKS // fits) for fits in (v7, separate))
    log = f"{v7_waves} wave{'s' * (v7_waves > 1)} each" if v7_waves == others else f"{v7_waves} / {others} waves"
    pairs = (f"{one} / {other}" for one, other in (registers, an_sm, (v7, separate)))
    return (str(card.sms), *pairs, where, log)


def _heads(window: tuple[int, int]) -> str:
    first, last = window
    return f"{first}–{last}" if last > first else str(first)
