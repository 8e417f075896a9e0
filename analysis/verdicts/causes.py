"""Why the versions take the time they take, decided by timings, counts, hardware counters and ablations.

Each function says what follows from the values found; above it are the question, what is measured, and why. An ablation
is a version with one thing changed; what none has measured yet is said to be open.
"""

from __future__ import annotations

from html import escape
from typing import Any

import yaml

from kernels import VERSIONS, Plan, Problem
from kernels.version import Sync

from ..book.tables import Table, code, small
from ..records.files import gpu_folder
from ..records.interval import TIE
from ..records.measured import Measured
from . import claims
from .argument import (
    BOUND,
    DRAM,
    HALF,
    HALF_PRECISION,
    L2,
    NOT_YET,
    OPEN,
    SEEN,
    Argument,
    Findings,
    Found,
    Item,
    closed,
    collect,
    fp32_percent,
    number,
    printed,
    rotations,
    speed,
    waits,
)
from .contradictions import BOTH_ON_TENSOR_CORES, PHASE6_SPILL, V2_UNROTATED, V7_LAUNCHED, phase6_rows
from .facts import Facts
from .rule import Undecided, interval

SHAPES = (512, 2048, 4096, 8192)
ROPE = (128, 512, 2048)
BUSIEST = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
L1 = "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed"
ISSUE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
GLOBAL = "long_scoreboard lg_throttle"  # stalls: a warp waits for global or local memory

CAUSES: dict[str, Argument] = {}
cause = collect(CAUSES)


# ---------------------------------------------------------------- attention


@cause(
    "Is attention at these shapes bound by memory, by issue, by latency or by idle lanes?",
    dims=SHAPES,
    claims=("A-09", "A-11", "A-17"),
    needs=("dram", "l2", "issue", "barrier"),
    items={
        "dram": Item("DRAM throughput, of its peak", lambda f, d: f.counter("attention_online_fixed", DRAM, d), "%"),
        "l2": Item("L2 throughput, of its peak", lambda f, d: f.counter("attention_online_fixed", L2, d), "%"),
        "l1": Item(
            "L1 and shared memory's data path, of its peak",
            lambda f, d: f.counter("attention_online_fixed", L1, d),
            "%",
        ),
        "fp32": Item(
            "FLOP a second, of what the FP32 units can", lambda f, d: fp32_percent(f, "attention_online_fixed", d), "%"
        ),
        "busiest": Item(
            "an SM's busiest unit, of its peak", lambda f, d: f.counter("attention_online_fixed", BUSIEST, d), "%"
        ),
        "issue": Item(
            "cycles in which a scheduler issues", lambda f, d: f.counter("attention_online_fixed", ISSUE, d), "%"
        ),
        "keys": Item(
            "threads of a block that have a key",
            lambda f, d: 100 * f.size("attention_online_fixed", "seq_k", d) / f.threads("attention_online_fixed", d),
            "%",
        ),
        "barrier": Item(
            "a warp's time at barriers", lambda f, d: waits(f, "attention_online_fixed", "barrier", d), "%"
        ),
        "memory": Item(
            "a warp's time waiting for global memory", lambda f, d: waits(f, "attention_online_fixed", GLOBAL, d), "%"
        ),
        "filled": Item(
            "rate with 32 times the heads, over that with 4",
            lambda f, d: (
                f.tflops("attention_online_fixed", d, study="filled")
                / f.tflops("attention_online_fixed", d, study="controlled")
            ),
            dims=(512, 2048),
        ),
        "threads": Item(
            "two passes with all threads at the scores, over one thread a key",
            speed("attention_two_pass_all_warps", "attention_two_pass_float4", study="ablation"),
        ),
        "tensor": BOTH_ON_TENSOR_CORES,
    },
    because=(
        "DRAM carries {dram} of what it can, L2 {l2}, L1 and shared memory {l1}; the FP32 units do {fp32} of what they "
        "can, and a scheduler issues in {issue} of its cycles.",
        "{keys} of a block's threads have a key. A warp spends {barrier} of its time at barriers, where it waits for "
        "those that do, and {memory} waiting for global memory.",
        "With 32 times the heads the rate is {filled} that with 4.",
        "With all threads at the scores, several to a key and the same bytes, two-pass attention {threads:as} the "
        "version with one thread a key.",
        "With both products on tensor cores it {tensor:as} the version without.",
    ),
)
def bound(found: Findings) -> str:
    memory = [found[key] for key in ("dram", "l2", "l1") if found[key]]
    if any(each.above(BOUND) for each in memory):
        return "By memory"
    if any(found[key].above(BOUND) for key in ("issue", "busiest", "fp32")):
        return "By issue"
    threads = found["threads"]
    if threads.above(SEEN):
        return "Neither by memory nor by issue: by idle lanes"
    if threads.below(SEEN):
        return "Neither by memory nor by issue: by latency, and not by idle lanes"
    if threads:
        return "Neither by memory nor by issue: by latency, and at some head dims by idle lanes"
    return "Neither by memory nor by issue: by latency, with most threads idle"


@cause(
    "Does the rate fall off an L2 cliff at head dim 8192?",
    dims=(2048, 4096, 8192, 16384),
    claims=("A-12",),
    needs=("fall", "fall_held"),
    items={
        "published": Item(
            "TFLOP/s in the published shapes", lambda f, d: f.tflops("attention_online_fixed", d), "TFLOP/s"
        ),
        "blocks": Item("blocks of a call, published", lambda f, d: f.blocks("attention_online_fixed", d), ""),
        "used": Item("Q, K, V and out of a call, of this L2, published", lambda f, d: _l2_percent(f, d, "log"), "%"),
        "held": Item(
            "TFLOP/s with 4 heads of 64 queries",
            lambda f, d: f.tflops("attention_online_fixed", d, study="controlled"),
            "TFLOP/s",
        ),
        "used_held": Item("Q, K, V and out of a call, of this L2", lambda f, d: _l2_percent(f, d, "controlled"), "%"),
        "fall": Item(
            "rate, of that at 4096, published shapes",
            lambda f, d: 100 * f.tflops("attention_online_fixed", d) / f.tflops("attention_online_fixed", 4096),
            "%",
            dims=(8192,),
        ),
        "fall_held": Item(
            "rate, of that at 4096, heads and queries held",
            lambda f, d: (
                100
                * f.tflops("attention_online_fixed", d, study="controlled")
                / f.tflops("attention_online_fixed", 4096, study="controlled")
            ),
            "%",
            dims=(8192,),
        ),
        "dram": Item(
            "DRAM throughput, of its peak, published shapes",
            lambda f, d: f.counter("attention_online_fixed", DRAM, d),
            "%",
            dims=(8192,),
        ),
    },
    because=(
        "At 8192 the rate is {fall} of that at 4096 in the published shapes, which shrink heads and queries as the "
        "head dim grows, and {fall_held} with both held.",
        "DRAM carries {dram} of what it can there.",
    ),
)
def cliff(found: Findings) -> str:
    fall, held, used = found["fall"], found["fall_held"], found["used_held"]
    if not held.below(100 / SEEN):
        return "No: with the shapes held it does not fall at all"
    if held.above(2 * fall.values[8192].value):
        there = f", where a call's tensors take {used.at(8192)} of the L2" if used.at(8192) else ""
        return f"No: most of the fall is the shapes'; with them held a smaller one is left{there}"
    return "The rate falls with the shapes held as well"


def _l2_percent(facts: Facts, hdim: int, study: str) -> float:
    """The bytes of q, k, v and out of a call, in per cent of the GPU's L2."""
    batch, heads, rows = (
        facts.size("attention_online_fixed", name, hdim, study=study) for name in ("batch", "heads", "seq_q")
    )
    return 100 * 4 * 4 * batch * heads * rows * hdim / facts.gpu("l2_bytes")


# ---------------------------------------------------------------- RoPE


def _threads_with_key(version: str) -> Any:
    """The share of a block's threads, in per cent, that have a key of its tile."""
    return lambda f, d: (
        100 * f.shared_bytes(version, d, "scores", rotary="full") / 4 / f.threads(version, d, rotary="full")
    )


def _conflicts(version: str) -> Any:
    """Wavefronts of a shared access: 1 is free of bank conflicts."""
    return lambda f, d: (
        f.count(version, "shared.wavefronts", d, rotary="full") / f.count(version, "shared.requests", d, rotary="full")
    )


@cause(
    "Is fused RoPE slow by rotating again, by idle lanes, or by bank conflicts?",
    dims=ROPE,
    claims=("C-08", "C-12", "C-15", "C-16", "C-23"),
    needs=("time3", "time6"),
    items={
        "v2": V2_UNROTATED,
        "v3": Item(
            "share of V3's gap that goes without rotating K",
            closed("rope_v3", "rope_v3_no_rotation", "rope_separate", rotary="full"),
            "%",
        ),
        "v6": Item(
            "share of V6's gap that goes without rotating K",
            closed("rope_v6a", "rope_v6b_no_rotation", "rope_separate", rotary="full"),
            "%",
        ),
        "v5": Item(
            "share of V5's gap that goes with all threads at the scores",
            closed("rope_v5", "rope_v5_all_threads", "rope_separate", rotary="full"),
            "%",
        ),
        "threads6": Item(
            "share of V6's gap that goes with all threads at the scores, partial rotation",
            closed("rope_v6b", "rope_v6b_all_threads", "rope_separate", rotary="partial"),
            "%",
        ),
        "padded6": Item(
            "share of V6's gap that goes with padded rows, partial rotation",
            closed("rope_v6b", "rope_v6b_padded", "rope_separate", rotary="partial"),
            "%",
        ),
        "once": Item(
            "K rotated once for all queries of a head, over separate kernels",
            speed("rope_v3_64_queries", "rope_separate", study="ablation", rotary="full"),
        ),
        "rotations3": Item(
            "rotations of V3, of those of V2",
            lambda f, d: 100 * rotations(f, "rope_v3", d) / rotations(f, "rope_v2", d),
            "%",
        ),
        "time3": Item("time of V3 over that of V2", lambda f, d: f.us("rope_v3", d) / f.us("rope_v2", d)),
        "rotations6": Item(
            "rotations of V6 with partial rotation, of those with full",
            lambda f, d: (
                100
                * f.count("rope_v6b", "event.rotation", d, rotary="partial")
                / f.count("rope_v6a", "event.rotation", d, rotary="full")
            ),
            "%",
        ),
        "time6": Item(
            "time of V6 with partial rotation over that with full",
            lambda f, d: f.us("rope_v6b", d, rotary="partial") / f.us("rope_v6a", d, rotary="full"),
        ),
        "lanes5": Item("threads of a block of V5 that have a key", _threads_with_key("rope_v5"), "%"),
        "lanes6": Item("threads of a block of V6 that have a key", _threads_with_key("rope_v6a"), "%"),
        "barrier5": Item(
            "a warp's time at barriers, V5", lambda f, d: waits(f, "rope_v5", "barrier", d, rotary="full"), "%"
        ),
        "barrier6": Item(
            "a warp's time at barriers, V6", lambda f, d: waits(f, "rope_v6a", "barrier", d, rotary="full"), "%"
        ),
        "banks2": Item("wavefronts of a shared access, V2", _conflicts("rope_v2"), ""),
        "banks5": Item("wavefronts of a shared access, V5", _conflicts("rope_v5"), ""),
        "banks6": Item("wavefronts of a shared access, V6", _conflicts("rope_v6a"), ""),
    },
    because=(
        "V3 makes {rotations3} of V2's rotations and takes {time3} its time; V6 with partial rotation makes "
        "{rotations6} of those with full rotation and takes {time6} its time.",
        "In V6 {lanes6} of a block's threads have a key, in V5 {lanes5}; a warp spends {barrier6} and {barrier5} of "
        "its time at barriers.",
        "A shared access takes {banks6} wavefronts in V6 and {banks5} in V5, {banks2} in V2.",
        "When K is not rotated, {v2} of V2's gap to separate kernels goes, {v3} of V3's, {v6} of V6's.",
        "With all threads at the scores {v5} of V5's goes, and {threads6} of V6's; with rows padded against bank "
        "conflicts {padded6} of V6's.",
        "With K rotated once for all queries of a head RoPE {once:as} separate kernels.",
    ),
)
def rotation(found: Findings) -> str:
    shares = {name: found[name] for name in ("v2", "v3", "v6") if found[name]}
    if not shares:
        refuted = found["time3"].above(TIE) and found["time6"].above(1 / SEEN)
        return f"Not by rotating alone; its share of the gap is {NOT_YET}" if refuted else OPEN
    mostly = [name.upper() for name, share in shares.items() if share.above(HALF)]
    rest = [name.upper() for name in shares if name.upper() not in mostly]
    if not rest:
        return "By rotating again"
    said = "Not by rotating again"
    if mostly:
        said = f"By rotating again in {' and '.join(mostly)}, not in {' and '.join(rest)}"
    other = {"idle lanes": found["threads6"], "bank conflicts": found["padded6"]}
    blamed = [name for name, share in other.items() if share.above(HALF)]
    return f"{said}; V6 by {' and '.join(blamed)}" if blamed and "V6" in rest else said


def _saved(timer: str) -> Any:
    """Microseconds of a call that the hybrid saves over separate kernels."""
    return lambda f, d: f.us("rope_separate", d, timer, rotary="partial") - f.us("rope_v7", d, timer, rotary="partial")


def host_syncs(version: str) -> float:
    """Host syncs of a call of a RoPE version, by its plan."""
    plan: Plan = VERSIONS[version](Problem("rope", 1, 4, seq_q=64, hdim=512, rotary_dim=128))
    return float(sum(isinstance(step, Sync) for step in plan.steps))


@cause(
    "Does RoPE V7 win by fusion, or by a launch and a host sync less?",
    dims=(*ROPE, 4096, 8192),
    claims=("C-18", "C-19", "C-21"),
    needs=("device", "launched"),
    items={
        "device": Item(
            "V7 over separate kernels, on the device",
            speed("rope_v7", "rope_separate", rotary="partial"),
            said=printed({128: "N199", 512: "N201", 2048: "N203", 4096: "X085", 8192: "X086"}),
        ),
        "launched": V7_LAUNCHED,
        "saved": Item("saved on the device, a call", _saved("device_warm"), "µs"),
        "saved_launched": Item("saved with launches and syncs timed", _saved("launched"), "µs"),
        "rotations": Item(
            "rotations of V7 over those of separate kernels", lambda f, d: rotations(f, "rope_v7", d, "partial")
        ),
        "launches": Item(
            "launches that V7 saves",
            lambda f, d: f.launches("rope_separate", d, rotary="partial") - f.launches("rope_v7", d, rotary="partial"),
            "",
        ),
        "syncs": Item("host syncs that it saves", lambda f, d: host_syncs("rope_separate") - host_syncs("rope_v7"), ""),
        "kernel": Item(
            "separate kernel that rotates Q, under the profiler",
            lambda f, d: f.counter("rope_separate", "gpu__time_duration.sum", d, launch=0, rotary="partial") / 1000,
            "µs",
        ),
        "one_sync": Item(
            "V7 over separate kernels with one host sync as it has, launches and syncs timed",
            speed("rope_v7", "rope_separate_one_sync", study="host", rotary="partial", timer="launched"),
        ),
        "query": Item(
            "V7 over a V7 with its query in global memory",
            speed("rope_v7", "rope_v7_global_query", study="ablation", rotary="partial"),
        ),
        "other": Item(
            "the other way round, K inside and Q before, over separate kernels",
            speed("rope_v7_fused_k", "rope_separate", study="ablation", rotary="partial"),
        ),
        "sinusoidal": Item(
            "time of V7 over that of the sinusoidal hybrid, whose structure it has",
            lambda f, d: f.us("rope_v7", d, rotary="partial") / f.us("sinusoidal_hybrid_v1", d),
            dims=(512, 2048, 4096, 8192),
        ),
    },
    because=(
        "V7 rotates {rotations} as often as separate kernels and saves {launches} launch and {syncs} host sync a call.",
        "On the device it {device:as} them; with launches and syncs timed it {launched:as} them.",
        "As launched, V7 {one_sync:as} separate kernels with one host sync.",
        "A call saves {saved} on the device and {saved_launched} as launched (below zero: it loses).",
        "Under the profiler the kernel that it does without takes {kernel}.",
        "V7 takes {sinusoidal} the time of the sinusoidal hybrid, whose structure it has and whose loop has more loads "
        "in flight.",
        "V7 {query:as} a V7 with its query in global memory.",
        "The other way round RoPE {other:as} separate kernels.",
    ),
)
def hybrid(found: Findings) -> str:
    device, launched = found["device"], found["launched"]
    wins = [str(hdim) for hdim, value in launched.values.items() if value.low > TIE]
    if device.above(TIE):
        return "By fusion: it wins on the device"
    if not device.below(1):
        return "By fusion at some head dims"
    if not wins:
        return "By neither: it loses with launches and syncs timed as well"
    equal = found["one_sync"].at(*map(int, wins))
    what = "by a launch and a sync less" if not equal else "by a sync less" if equal.below(TIE) else "by a launch less"
    return f"Not by fusion, which loses on the device; at {' and '.join(wins)} it wins {what}"


# ---------------------------------------------------------------- half precision


@cause(
    "Did Phase 6 lose to register pressure, or to idle threads?",
    dims=(64,),
    claims=("E-03", "E-04", "E-05", "E-06", "E-07"),
    needs=("spill", "second"),
    items={
        "spill": PHASE6_SPILL,
        "second": Item(
            "iteration 2, arrays in shared memory, over iteration 1",
            speed("fp16_phase6_iter2", "fp16_phase6_iter1", **HALF_PRECISION),
            said=printed({64: ("N419", "N422")}),
        ),
        "own": Item(
            "share of iteration 1's gap to Phase 4 that goes when a thread keeps only its own row",
            closed("fp16_phase6_iter1", "fp16_phase6_iter1_own_row", "fp16_phase4_causal", **HALF_PRECISION),
            "%",
        ),
        "rows": Item("threads of a block that have a row", lambda f, d: phase6_rows(f), ""),
        "threads": Item("threads of a block", lambda f, d: f.threads("fp16_phase6_iter2", d, **HALF_PRECISION), ""),
        "barrier6": Item(
            "a warp's time at barriers, Phase 6",
            lambda f, d: waits(f, "fp16_phase6_iter2", "barrier", d, **HALF_PRECISION),
            "%",
        ),
        "barrier4": Item(
            "a warp's time at barriers, Phase 4",
            lambda f, d: waits(f, "fp16_phase4", "barrier", d, **HALF_PRECISION),
            "%",
        ),
        "barriers": Item(
            "barriers of Phase 6 over those of Phase 4",
            lambda f, d: (
                f.count("fp16_phase6_iter2", "barriers", d, **HALF_PRECISION)
                / f.count("fp16_phase4", "barriers", d, **HALF_PRECISION)
            ),
        ),
        "alone": Item(
            "Phase 6 with 32 threads a block over Phase 6",
            speed("fp16_phase6_iter2_32_threads", "fp16_phase6_iter2", study="ablation", **HALF_PRECISION),
        ),
        "warp": Item(
            "share of iteration 2's gap that goes with a warp a row",
            closed("fp16_phase6_iter2", "fp16_phase6_iter2_warp_per_row", "fp16_phase4_causal", **HALF_PRECISION),
            "%",
        ),
        "padded": Item(
            "share of iteration 2's gap that goes with padded rows",
            closed("fp16_phase6_iter2", "fp16_phase6_iter2_padded", "fp16_phase4_causal", **HALF_PRECISION),
            "%",
        ),
    },
    because=(
        "Iteration 1 spills {spill} a thread; iteration 2, which keeps its arrays in shared memory, {second:as} it.",
        "{rows} of a block's {threads} threads have a row. A warp of Phase 6 spends {barrier6} of its time at "
        "barriers, one of Phase 4 {barrier4}, though Phase 6 executes {barriers} the barriers.",
        "When a thread keeps only its own row, {own} of the gap to Phase 4 goes.",
        "With 32 threads a block Phase 6 {alone:as} the version with 256.",
        "With a warp a row {warp} of the gap goes, with padded rows {padded}.",
    ),
)
def phase6(found: Findings) -> str:
    pressed = found["spill"].above(0) or found["own"].above(HALF)
    if found["warp"].above(HALF):
        return "To both" if pressed else "To idle threads, not to register pressure"
    if found["padded"].above(HALF):
        return "To bank conflicts"
    if pressed:
        return "To register pressure"
    idle = found["barrier6"].above(HALF) and not found["warp"]
    rest = f"; what the idle threads cost is {NOT_YET}" if idle else ""
    return f"Not to register pressure: nothing spills{rest}"


# ---------------------------------------------------------------- all ablations


def _described() -> dict[str, tuple[str, str]]:
    """Every ablation: what it changes, and in which version; one that is asked for and not written has no parent."""
    wanted = yaml.safe_load(claims.CLAIMS.read_text(encoding="utf-8")).get("wanted", {})
    known = {name: (v.change, v.parent or "") for name, v in VERSIONS.items() if v.ablation}
    return known | {name: (text, "") for name, text in wanted.items() if name not in VERSIONS}


def ablations(evidence: Measured) -> Table:
    """Every ablation with its speed over what it changes, by head dim, or that it is not measured."""
    facts = Facts(gpu_folder(evidence.slug))
    rows = []
    for name, (change, parent) in _described().items():
        found = _over_parent(facts, name, parent) if parent else Found()
        cells = [f"{hdim}: {number(value.value, '×')}" for hdim, value in found.values.items()]
        over = f" {small(f'over {code(parent)}')}" if parent else ""
        rows.append((f"{code(name)}{over}", escape(change), "<br>".join(cells) or small(NOT_YET)))
    header = ("version", "what is changed", "speed over its parent, by head dim")
    return Table(header, rows, numbers=header[2:], caption="On the device, in one run with what each is compared with.")


def _over_parent(facts: Facts, name: str, parent: str) -> Found:
    values = {}
    for hdim in (64, 128, *SHAPES):
        chosen: dict[str, Any] = {"seq_q": 512} if VERSIONS[name].family == "fp16" else {}
        try:
            values[hdim] = interval(facts.speed(name, parent, hdim, study="ablation", **chosen))
        except Undecided:
            continue
    return Found(values=values)
