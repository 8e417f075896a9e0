"""Claims of the documents on validation, and what decides it."""

from ..evidence import Estimate, Evidence
from ..record import published
from .claim import WRITE_UP, YES_OR_NO, Tests, count, headline, undecided, universal
from .measures import ONLINE, SEPARATE

PASSING = {  # the versions that the appendix lists, and the head dims
    ONLINE: (512, 2048, 4096, 8192),
    **{f"sinusoidal_{v}": (2048,) for v in ("v1", "v3", "v4", "v5", "separate_scalar")},
    **{f"rope_{v}": (2048,) for v in ("v1c", "v2", "v3", "v4", "v5", "v6a", "v6b", "v7")},
    SEPARATE: (2048, 4096),
}


@universal
def d01(e: Evidence) -> Tests:
    """Everything was validated against PyTorch's SDPA to 5e-5, and all implementations pass."""
    yield headline(
        "it is right on uniform inputs",
        {v: e.status(v, "ok", hdim=hdim, inputs="uniform") for v, hdim in PASSING.items()},
        equals=1,
        unit=YES_OR_NO,
    )


@count
def d02(e: Evidence) -> Tests:
    """All numbers are from one kind of card, the RTX 4000 Ada, at head dims from 512 to 16384."""
    timed = published.load().query("quantity == 'time_ms'")
    largest = timed[timed["source_document"] == WRITE_UP].groupby("family")["hdim"].max()
    found = {family: Estimate.exact(largest[family], "published.csv") for family in ("attention", "sinusoidal", "rope")}
    yield headline("largest head dim with a printed time", found, equals="N284")


@undecided
def d03(e: Evidence) -> Tests:
    """Nearly every modern implementation runs positional embeddings as separate kernels before attention."""
    yield headline(
        "implementations that embed apart, of all",
        "the document names none of them; a survey of implementations would decide it. The log itself names one that "
        "fuses, FlashInfer",
        least=0,
    )
