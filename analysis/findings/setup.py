"""The two cards."""

from ..evidence import Evidence
from ..studies import AUTHORS_SMS, MAIN
from . import Says, checks, exact, finding


@finding("setup-cards", """Blocks run on *streaming multiprocessors* (SMs). The authors' card, an RTX 4000 Ada, has
{theirs} of them, and our {card} has {ours}. Their shape has {blocks} blocks, one for each query of each head. That
fills their card and leaves more than half of ours empty.""")
def cards(e: Evidence) -> Says:
    blocks, sms = MAIN.heads * MAIN.seq_q, e.gpu["sms"]
    return exact("gpu.json", theirs=AUTHORS_SMS, ours=sms, blocks=blocks), checks(
        5 * AUTHORS_SMS < blocks, 2 * blocks < 5 * sms
    )
