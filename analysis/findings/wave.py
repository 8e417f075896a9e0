"""Add a head, and the winner changes: RoPE's V7."""

from ..evidence import Evidence
from ..models import waves
from ..models.waves import SEPARATE, V7, held, occupied, step_up, windows
from ..studies import AUTHORS_SMS, MAIN, matched
from . import Says, across, checks, faster, finding, not_faster, not_slower, numbers, of_values, printed, slower, times

HDIM, SMALL = MAIN.hdim, (128, 512, 2048)  # of this page; those with four heads of 64 tokens
PLAIN = "attention_online_fixed"


@finding("wave-shapes", "At *their shapes* V7 loses: separate kernels take {separate:.0}, and V7 takes {v7:.0}.")
def shapes(e: Evidence) -> Says:
    v7 = e.speedup(V7, over=SEPARATE, hdim=HDIM)
    taken = {"separate": e.time(SEPARATE, problem=MAIN), "v7": e.time(V7, problem=MAIN)}
    return numbers(**taken), checks(slower(e.speedup(V7, over=SEPARATE)), slower(v7))


@finding("wave-load", "At *their load* V7 is {v7:.1} as fast as separate kernels, about what the write-up prints.")
def load(e: Evidence) -> Says:
    v7 = e.speedup(V7, over=SEPARATE, study="matched", hdim=SMALL)
    return numbers(v7=times(v7.at(HDIM))), checks(
        faster(v7), of_values(v7.at(HDIM).within(0.1, printed(V7, hdim=(HDIM,))))
    )


@finding("wave-window", """We tried up to {most} heads. V7 wins clearly with {first}. It does so again with {second}.
With the others it loses, is level, or leads by {level:faster} at most.""")
def window(e: Evidence) -> Says:
    heads, won, level = windows(e)
    first, second = heads.split(" and ")
    most = max(problem.heads for problem in e.study("waves").problems("rope"))
    return numbers(most=most, first=first, second=second, level=level.fastest), checks(
        faster(won), slower(level.slowest), won.slowest > level.fastest
    )


@finding("wave-fit", """A thread of V7 needs fewer registers than a thread of the separate attention kernel, so more of
its blocks fit: {v7:.0f} on the whole card, against {separate:.0f}. *Their load* is {load:.0f} blocks, between the
two.""")
def fit(e: Evidence) -> Says:
    own, others = (e.resource(name, "registers", hdim=HDIM)[HDIM].value for name in (V7, SEPARATE))
    v7, separate = (held(e, name, HDIM)[HDIM].value for name in (V7, SEPARATE))
    load = e.blocks(V7, study="matched", hdim=HDIM)
    return numbers(v7=v7, separate=separate, load=load[HDIM].value), checks(
        occupied(e, V7, "matched", SMALL) < 1, occupied(e, SEPARATE, "matched", SMALL) > 1, bool(own < others)
    )


@finding("wave-step", """With one head fewer, all blocks of both kernels fit. The last head sends separate kernels into
a second wave: they take {separate:.1} as long as without it. V7 stays in its first wave and takes {v7:faster}
longer.""")
def step(e: Evidence) -> Says:
    separate, v7 = step_up(e, SEPARATE, SEPARATE), step_up(e, V7, SEPARATE)
    last = held(e, SEPARATE, HDIM)[HDIM].value // MAIN.seq_q  # number of heads that fits
    return numbers(separate=times(separate.at(HDIM)), v7=v7.at(HDIM)), checks(
        faster(separate), separate > v7, bool(matched(MAIN, e.gpu["sms"]).heads == last + 1)
    )


@finding("wave-test", """We took the test out of a copy of V7 in CUDA C++, and nothing else. The copy is {gain:.1} as
fast, and beats separate kernels even at *their shapes*, where nothing waits for a second wave.""")
def test(e: Evidence) -> Says:
    gain, over = (
        e.speedup("control_rope_v7_no_break", over=other, study="ablation")
        for other in ("control_rope_v7", "control_rope_separate")
    )
    return numbers(gain=times(gain.at(HDIM))), checks(
        faster(gain), faster(over), occupied(e, SEPARATE, hdim=SMALL) < 1, occupied(e, V7, hdim=SMALL) < 1
    )


@finding("wave-alone", "Even if separate kernels rotated in no time, V7 would be {alone:.1} as fast at *their load*.")
def alone(e: Evidence) -> Says:
    alone = across(e, V7, PLAIN, study="matched", hdim=(512, 2048))
    memory = e.speedup(V7, over=f"{V7}_global_query")  # the saved buffer gains little, as the chapter says
    return numbers(alone=times(alone.at(HDIM))), checks(faster(alone), not_slower(memory), memory < 1.1)


@finding("wave-theirs", """In our build for that card {all} blocks of either kernel fit at once, and the shape has
{log}. If theirs was alike, both needed a second wave, and something else made V7 win. Their clock also counts a wait
that V7 saves, but on our card that is too short to make V7 win.""")
def theirs(e: Evidence) -> Says:
    v7, separate = (waves.compiled(e, name, "blocks_per_sm", waves.AUTHORS_TARGET) for name in (V7, SEPARATE))
    clock = e.speedup(V7, over=SEPARATE, timer="launched")
    return numbers(all=v7 * AUTHORS_SMS, log=waves.LOG_BLOCKS), checks(
        v7 == separate, waves.as_many_there(e), AUTHORS_SMS * v7 < waves.LOG_BLOCKS,
        of_values(not_faster(clock.at(HDIM))),
    )
