"""Hardware counters and the roofline."""

from __future__ import annotations

import functools

import pandas as pd

from ..evidence import Evidence, NotMeasured, said
from ..models import counter_agreement, profiles, roofline
from ..record.text import span
from . import Says, checks, finding, numbers

HDIM, LARGE = 2048, 8192
MANY = 1e5  # wavefronts


@functools.lru_cache(maxsize=4)
def launches(e: Evidence) -> pd.DataFrame:
    """Every profiled launch. Raises: NotMeasured of none."""
    found = profiles.launches(e.record.folder)
    if found.empty:
        raise NotMeasured("hardware counters were not read: `make counters`")
    return found


@functools.lru_cache(maxsize=4)
def points(e: Evidence) -> pd.DataFrame:
    """Every point of the roofline. Raises: NotMeasured."""
    found = roofline.points(e)
    if found.empty:
        raise NotMeasured("no version was timed that was profiled or counted")
    return found


@functools.lru_cache(maxsize=4)
def compared(e: Evidence) -> pd.DataFrame:
    """Every launch by the emulator and by the card."""
    return counter_agreement.compare(launches(e), counter_agreement.counted_launches())


@finding("roofline-reached", """On the {card} no version reaches its roof: the best reaches {l2} of what the L2 allows
at its bytes, and {dram} of what DRAM allows with caches flushed. Neither their bandwidth nor arithmetic is the
limit.""")
def reached(e: Evidence) -> Says:
    found = points(e).groupby("level")["percent_of_roof"].max()
    return numbers(
        l2=span(found.filter(like="l2"), "%", 0), dram=span(found.filter(like="dram"), "%", 1)
    ), checks(bool(found.max() < 60))


@finding("roofline-intensity", """The documents reckon {reckoned:.2f} FLOP a byte for the online kernel and call it
memory bound. Between L2 and L1 it is {l2} at head dim 2048 on the {card}. From DRAM, with caches flushed, it is {dram},
since each byte is read once and then comes from caches.""")
def intensity(e: Evidence) -> Says:
    found = points(e)
    online = found[(found["version"] == "attention_online_fixed") & (found["hdim"] == HDIM)]
    at, reckoned = online.set_index("level")["flop_per_byte"], said("N232").value
    if at.empty:
        raise NotMeasured("the online kernel has no point")
    l2, dram = span(at.filter(like="l2"), digits=2), span(at.filter(like="dram"), digits=1)
    return numbers(reckoned=reckoned, l2=l2, dram=dram), checks(
        bool(at.min() < 2 * reckoned < at.max() / 2)
    )


@finding("roofline-published", """If every byte came from DRAM once, a call would do {distinct} FLOP a byte, where the
write-up reckons {reckoned:.1f}. The published times reach {percent} of that roof.""")
def published(e: Evidence) -> Says:
    found, reckoned = roofline.published_points(), said("N298").value
    distinct, percent = span(found["flop_per_byte"], digits=1), span(found["percent_of_roof"], "%", 1)
    return numbers(distinct=distinct, reckoned=reckoned, percent=percent), checks(
        bool(found["percent_of_roof"].max() < 60 and found["flop_per_byte"].min() > reckoned)
    )


@finding("counters-bound", """No version is bound by DRAM or by L2: on the {card} at head dim 2048 DRAM is busy for at
most {dram} of its peak and L2 for at most {l2}. {waiting} of {all} versions wait, for barriers or for loads. {l1} keep
the path to L1 and shared memory busy for 60 % or more, most of them because they load one float at a time or load
tables, and {blocks} have too few blocks to fill half of the SMs.""")
def bound(e: Evidence) -> Says:
    attention = profiles.attention(profiles.at(launches(e), HDIM))
    held = profiles.tally(attention, e.gpu["sms"])
    dram, l2 = (float(attention[f"{unit}_percent"].max()) for unit in ("dram", "l2"))
    return numbers(
        dram=span([dram], "%"), l2=span([l2], "%", 0), waiting=held["latency"], all=len(attention), l1=held["L1"],
        blocks=held["blocks"],
    ), checks(max(dram, l2) < profiles.BUSY, held["latency"] > held["L1"])  # fmt: skip


@finding("counters-large", """With caches flushed the attention kernels read {cold} from DRAM at head dim 8192 on the
{card}; with warm caches, {warm}. The L2 keeps nearly all of it. A call has {blocks} blocks for {sms} SMs.""")
def large(e: Evidence) -> Says:
    found = profiles.attention(profiles.at(launches(e), LARGE))
    cold, warm = found["dram_read_bytes_cold"], found["dram_read_bytes"]
    blocks = [profiles.blocks(row) for row in found.to_dict("records")]
    return numbers(
        cold=span(cold / 1e6, "MB"), warm=span(warm / 1e6, "MB"), blocks=span(blocks, digits=0), sms=e.gpu["sms"]
    ), checks(bool((warm < cold / 10).all()))


@finding("counters-wavefronts", """Of {all} launches that have more than 100,000 wavefronts of shared memory on the
{card}, the emulator, shuffles included, is within 10 % of the card's counter in {share}. In Phase 4 of half precision
and its relatives the card has {fourth} of what the emulator counts.""")
def wavefronts(e: Evidence) -> Says:
    found = compared(e)
    many = found[found["quantity"].eq("wavefronts of shared memory") & (found["hardware"] > MANY)]
    fourth = many[many["version"].str.startswith("fp16_phase4")]["ratio"]
    if fourth.empty:
        raise NotMeasured("Phase 4 was not profiled")
    near = (many["ratio"] - 1).abs().le(counter_agreement.CLOSE).mean()
    return numbers(
        all=len(many), share=span([100 * near], "%", 0), fourth=span([100 * fourth.median()], "%", 0)
    ), checks(bool(near > 0.5), bool(fourth.median() < 0.5), counter_agreement.CLOSE == 0.1)


@finding("counters-coherent", "Within 10 % they are, in {share} of {all} launches on the {card}.")
def coherent(e: Evidence) -> Says:
    near = (profiles.coherence(launches(e), e.target) - 1).abs() <= counter_agreement.CLOSE
    return numbers(share=span([100 * near.mean()], "%", 0), all=len(near)), checks(
        bool(near.mean() > 0.5), counter_agreement.CLOSE == 0.1
    )
