"""Add a head, and the winner changes: RoPE's V7."""

from dataclasses import replace

from ..evidence import Estimate, Estimates, Evidence, NotMeasured
from ..models.waves import (
    LOG_BLOCKS,
    SEPARATE,
    V7,
    compiled,
    occupied,
    places,
    released,
    runs_of,
    waves_in_slice,
    windows,
)
from ..record import published
from ..record.timers import timer_of
from ..studies import AUTHORS_SMS, AUTHORS_TARGET, CLOCK, MAIN, SLICE, SLICES, STUDIES, THEIR_CLOCK, THEIR_SMS
from . import Says, across, checks, exact, faster, finding, not_slower, numbers, of_values, printed, slower, ties, times

HDIM, SMALL = MAIN.hdim, (128, 512, 2048)  # of this page; those with four heads of 64 tokens
PLAIN = "attention_online_fixed"
ALONE = f"device_warm@{SLICE}"


def by_heads(e: Evidence, hdim: int = HDIM, study: str = "slices_heads") -> Estimates:
    """V7 over separate kernels, the GPU alone, by the number of heads: on their SMs, or in another study."""
    problems = [each for each in e.study(study).problems("rope") if each.hdim == hdim]
    found = e.speedup(V7, SEPARATE, study, "device_warm", problem=problems)
    return Estimates({problem.heads: each for problem, each in sorted(found.items(), key=lambda at: at[0].heads)}, "×")


def printed_us(version: str) -> Estimates:
    """The least and the most microseconds that documents and their logs print for a version at this page's shape."""
    said = published.published(version, MAIN)
    ends = {"low": said.low, "high": said.high} if said else {}
    return Estimates({name: Estimate.exact(1e3 * ms, "published.csv") for name, ms in ends.items()}, "µs")


@finding("wave-shapes", """At this shape the write-up has V7 {said:.2} as fast. On our whole card V7 loses: it takes
{v7:.1}, and separate kernels take {separate:.1}.""")
def shapes(e: Evidence) -> Says:
    v7, said = e.speedup(V7, over=SEPARATE, hdim=HDIM), printed(V7, hdim=(HDIM,))
    taken = {"separate": e.time(SEPARATE, problem=MAIN), "v7": e.time(V7, problem=MAIN)}
    return numbers(said=times(said), **taken), checks(
        slower(e.speedup(V7, over=SEPARATE, hdim=SMALL)), slower(v7), said > v7
    )


@finding("wave-slice", """On *their SMs* V7 is {clock:.2} as fast as separate kernels by their clock, and {alone:.2} by
the GPU alone.""")
def on_slice(e: Evidence) -> Says:
    alone, clock = (e.under(name).speedup(V7, over=SEPARATE, hdim=SMALL) for name in (THEIR_SMS, THEIR_CLOCK))
    said = printed(V7, hdim=(HDIM,))
    near = [of_values(each.at(HDIM).within(0.1, said)) for each in (alone, clock)]
    given = numbers(alone=times(alone.at(HDIM)), clock=times(clock.at(HDIM)))
    return given, checks(faster(alone), faster(clock), *near)


@finding("wave-times", """By their clock even the times are nearly theirs. V7 takes {v7:.0}, where the documents print
{said:.0}. Separate kernels take {separate:.0}, where they print {other:.0}. The match is partly luck: clock rate, L2
cache and memory of the slice are ours.""")
def on_their_clock(e: Evidence) -> Says:
    own = e.under(THEIR_CLOCK)
    v7, separate = own.time(V7, hdim=HDIM), own.time(SEPARATE, hdim=HDIM)
    said, other = (printed_us(name) for name in (V7, SEPARATE))
    near = [of_values(us.within(0.1, Estimates({HDIM: end}, "µs"))) for us, ends in ((v7, said), (separate, other))
            for end in ends.values()]  # fmt: skip
    return numbers(v7=v7, separate=separate, said=said, other=other), checks(*near)


@finding("wave-heads", """By the GPU alone, with one head fewer, V7 is {fewer:.2} as fast as separate kernels. With one
head more it is {more:.2} as fast. Among 1 to {most} heads V7 does best with exactly their four.""")
def heads(e: Evidence) -> Says:
    gain, small = by_heads(e), by_heads(e, 512)
    others = gain.at(*(count for count in gain if count != MAIN.heads))
    rows = [each for at in (gain, small) for each in (slower(at.at(3, 5)), faster(at.at(4)))]
    most = max(gain, default=0)
    counted = exact("timings of slices_heads", most=most)
    return numbers(fewer=times(gain.at(3)), more=times(gain.at(5)), **counted), checks(
        *rows, gain.at(MAIN.heads) > others
    )


@finding("wave-fit", """An SM has 65,536 registers. A block of V7 has 256 threads with {own:.0} registers each, so six
blocks fit. A thread of the separate attention kernel needs {other:.0} registers, so five fit. All SMs of the authors'
card hold {v7:.0} blocks of V7 at once, and {separate:.0} of the other kernel. Their shape has {log:.0} blocks, one for
each query of each head.""")
def fit(e: Evidence) -> Says:
    own, others = (compiled(e, name, "registers", AUTHORS_TARGET) for name in (V7, SEPARATE))
    fits, rest = ([places(e, name, hdim) for hdim in SMALL] for name in (V7, SEPARATE))
    given = {"v7": places(e, V7), "separate": places(e, SEPARATE), "log": LOG_BLOCKS, "own": own, "other": others}
    six, five = (places(e, name) == count * AUTHORS_SMS for name, count in ((V7, 6), (SEPARATE, 5)))
    return exact("resources", **given), checks(own < others, min(fits) >= LOG_BLOCKS > max(rest), six, five)


@finding("wave-step", """All of V7's blocks start at once. A few of the other kernel's are left over, run later on a
nearly empty card, and delay the end. So with the fourth head separate kernels take {separate:.2} as long as with
three. V7 takes {v7:.2} as long.""")
def step(e: Evidence) -> Says:
    three, four = (replace(MAIN, heads=count, kv_heads=count) for count in (3, 4))

    def grown(name: str) -> Estimates:
        taken = e.time(name, "slices_heads", ALONE, problem=(three, four))
        return Estimates({HDIM: taken[four] / taken[three]}, "×")

    separate, v7 = grown(SEPARATE), grown(V7)
    fits = 3 * MAIN.seq_q <= places(e, SEPARATE) < LOG_BLOCKS <= places(e, V7)
    return numbers(separate=times(separate), v7=times(v7)), checks(faster(separate), separate > v7, fits)


@finding("wave-again", """Separate kernels need a wave more than V7 at {first} heads, too, and V7 wins there by less.
At {level} heads the saved wave only brings a tie.""")
def again(e: Evidence) -> Says:
    gain = by_heads(e)
    v7, separate = (
        {heads: waves_in_slice(e, name, blocks=heads * MAIN.seq_q) for heads in gain} for name in (V7, SEPARATE)
    )
    more = {heads for heads in gain if heads > MAIN.heads and separate[heads] == v7[heads] + 1}
    led = {heads for heads, each in gain.items() if heads > MAIN.heads and each.side > 0}
    if not led or not more > led:
        raise NotMeasured("V7 leads again with more heads nowhere, or wherever it needs a wave less")
    return numbers(first=runs_of(led, gain), level=runs_of(more - led, gain)), checks(
        of_values(ties(gain.at(*(more - led)))), of_values(gain.at(*led).fastest < gain.at(MAIN.heads))
    )


@finding("wave-blocks", """With five blocks an SM V7 is {five:.2} as fast as separate kernels. As a control we set six
in the same way: then it is {six:.2} as fast, a little less than before, perhaps because the reserved memory comes out
of L1.""")
def blocks(e: Evidence) -> Says:
    five, six = (e.speedup(V7, SEPARATE, "slices_blocks", f"{ALONE}/{most}", problem=MAIN) for most in (5, 6))
    unpadded = e.under(THEIR_SMS).speedup(V7, over=SEPARATE, hdim=HDIM)[HDIM]
    return numbers(five=times(five), six=times(six)), checks(slower(five), faster(six), of_values(six[MAIN] < unpadded))


@finding("wave-sms", """We cut {slices:.0} slices, of 8 to {most:.0} SMs. Only with {sms:.0} SMs does V7 need one wave
and the other kernel two, and there V7 wins most. With fewer SMs it may save one wave of several, which gains less.""")
def sms(e: Evidence) -> Says:
    timers = [timer for timer in STUDIES["slices_sms"].timers if "@" in timer]
    gain = {timer: e.speedup(V7, SEPARATE, "slices_sms", timer, problem=MAIN)[MAIN] for timer in timers}
    theirs = Estimates({ALONE: gain.pop(ALONE)}, "×")
    count = {"slices": len(timers), "most": int(timers[-1].partition("@")[2]), "sms": SLICE}
    cut = {timer: timer_of(timer).sms for timer in timers}
    needed = {timer: [waves_in_slice(e, name, sms) for name in (V7, SEPARATE)] for timer, sms in cut.items()}
    one = [cut[timer] for timer, waves in needed.items() if waves == [1, 2]]
    saves = [timer for timer in gain if cut[timer] < SLICE and needed[timer][1] > needed[timer][0]]
    return exact("timings of slices_sms", **count), checks(
        theirs > Estimates(gain, "×"), one == [SLICE], of_values(not_slower(Estimates(gain, "×").at(*saves)))
    )


@finding("wave-window", """On the whole card we tried up to {most} heads. V7 wins clearly with {first}, and again with
{second}. With the others that we tried it is at most {level:.2} as fast. With 128 heads, where a wave hardly matters,
it is {full:.2} as fast.""")
def window(e: Evidence) -> Says:
    heads, won, level = windows(e)
    first, second = heads.split(" and ")
    full = e.speedup(V7, over=SEPARATE, study="filled", hdim=SMALL)
    most = max(problem.heads for problem in e.study("waves").problems("rope"))
    return numbers(most=most, first=first, second=second, level=times(level.fastest), full=times(full)), checks(
        faster(won), slower(level.slowest), of_values(won.slowest > level.fastest)
    )


@finding("wave-test", """In CUDA C++ V7 takes {own:.0} on the whole card. A copy of it without the test, and nothing
else changed, takes {copy:.0}. This copy beats separate kernels, which take {separate:.0}, although neither needs a
second wave there.""")
def test(e: Evidence) -> Says:
    copy, own, other = "control_rope_v7_no_break", "control_rope_v7", "control_rope_separate"
    taken = {name: e.time(each, study="ablation", hdim=HDIM) for name, each in
             (("copy", copy), ("own", own), ("separate", other))}  # fmt: skip
    gain, over = (e.speedup(copy, over=each, study="ablation") for each in (own, other))
    return numbers(**taken), checks(
        faster(gain), faster(over), occupied(e, SEPARATE, hdim=SMALL) < 1, occupied(e, V7, hdim=SMALL) < 1
    )


@finding("wave-copy", """But on their card a thread of the copy would need {registers:.0} registers. Then an SM holds
five blocks, and the wave is lost: on *their SMs* the copy is {copy:.2} as fast as separate kernels, and V7 in C++
{own:.2}.""")
def copy(e: Evidence) -> Says:
    copied, own = "control_rope_v7_no_break", "control_rope_v7"
    registers = compiled(e, copied, "registers", AUTHORS_TARGET)
    gains = {name: e.speedup(name, over="control_rope_separate", study=SLICES, hdim=SMALL) for name in (copied, own)}
    given = {"copy": times(gains[copied].at(HDIM)), "own": times(gains[own].at(HDIM))}
    return numbers(**given, **exact("resources", registers=registers)), checks(
        places(e, own) == 6 * AUTHORS_SMS, places(e, copied) == 5 * AUTHORS_SMS,
        places(e, own) >= LOG_BLOCKS > places(e, copied), faster(e.speedup(copied, over=own, study="ablation")),
        gains[copied] < gains[own], faster(gains[copied]),
    )  # fmt: skip


@finding("wave-small", """At head dims 128 and 512 V7 saves the same wave. By the GPU alone, on *their SMs*, it is
{alone:.2} as fast at 128. Their clock adds a wait of the host that V7 saves, and a short call feels it most: by that
clock it is {clock:.2} as fast.""")
def small(e: Evidence) -> Says:
    alone, clock = (e.under(name).speedup(V7, over=SEPARATE, hdim=SMALL) for name in (THEIR_SMS, THEIR_CLOCK))
    fits = [places(e, V7, hdim) >= LOG_BLOCKS > places(e, SEPARATE, hdim) for hdim in SMALL]
    return numbers(alone=times(alone.at(128)), clock=times(clock.at(128))), checks(
        faster(alone), faster(clock), of_values(clock > alone), *fits
    )


@finding("wave-waits", """On the whole card V7 saves no wave, and by their clock it still wins at these two head dims,
by the wait: at 128 it is {small:.2} as fast.""")
def waits(e: Evidence) -> Says:
    gain = e.under(CLOCK).speedup(V7, over=SEPARATE, hdim=SMALL)
    return numbers(small=times(gain.at(128))), checks(
        faster(gain.at(128, 512)), of_values(gain.at(HDIM) < 1), occupied(e, SEPARATE, hdim=SMALL) < 1
    )


@finding("wave-alone", """At head dim 2048 the launch that V7 saves does not explain its win by the GPU alone: even if
separate kernels rotated in no time, V7 would be {alone:.2} as fast on *their SMs*. So V7 has a slow loop, which costs
it most where SMs are nearly empty. It also needs few registers, which saves a wave with the four heads that they
measured. There the wave outweighs the loop.""")
def alone(e: Evidence) -> Says:
    alone = across(e, V7, PLAIN, study=SLICES, hdim=(512, 2048))
    memory = e.speedup(V7, over=f"{V7}_global_query")  # nor does the saved buffer
    empty, full = (e.speedup(V7, over=SEPARATE, study=study, hdim=SMALL) for study in ("log", "filled"))
    return numbers(alone=times(alone.at(HDIM))), checks(
        faster(alone), not_slower(memory), memory < 1.1, of_values(empty < full)
    )


@finding("wave-releases", """We built both kernels with {count:.0} releases of CUDA, 11.8 to 13.5, in CUDA C++ and as
nvcc does by default. Each gives V7 {v7:.0} registers on their card, and the other kernel {separate:.0}.""")
def releases(e: Evidence) -> Says:
    found = {name: released(f"control_{name}", target=AUTHORS_TARGET, build="default") for name in (V7, SEPARATE)}
    v7, separate = (found[name]["registers"].astype(int) for name in (V7, SEPARATE))
    blocks = [found[name]["blocks_per_sm"].astype(int) for name in (V7, SEPARATE)]
    given = {"count": found[V7]["release"].nunique(), "v7": v7.iloc[0], "separate": separate.iloc[0]}
    fits = [AUTHORS_SMS * each for each in blocks]
    return exact("releases", **given), checks(
        v7.nunique() == separate.nunique() == 1, bool(fits[0].min() >= LOG_BLOCKS > fits[1].max())
    )


@finding("wave-relocatable", """One build contradicts this. With relocatable code (`-rdc=true`, to be linked later) of
CUDA 13 an SM holds {blocks:.0} blocks of V7 at most, and it would not win.""")
def relocatable(e: Evidence) -> Says:
    rows = released(f"control_{V7}", target=AUTHORS_TARGET, build="rdc")
    late = rows["release"].str.startswith("13.")
    old, new = (AUTHORS_SMS * rows.loc[which, "blocks_per_sm"].astype(int) for which in (~late, late))
    return exact("releases", blocks=int(new.max() / AUTHORS_SMS)), checks(
        bool(old.min() >= LOG_BLOCKS > new.max()), len(old) > 0
    )
