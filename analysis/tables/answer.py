"""The main claims of the documents with what the story found, and of what kind the wrong claims are."""

from collections import Counter
from html import escape

from ..claims import judge
from ..claims.rule import FALLS
from ..evidence import DECIDED, Evidence
from .claims import LEDGER
from .table import Table, to, verdict_mark

FOUND = {  # by claim: what the story found instead or beside it, and the chapter
    "B-07": ("true over kernels that load one float at a time, not over those that load four", "loads"),
    "B-19": ("swap the baselines, and the verdicts swap", "loads"),
    "A-06": ("the kernel returns NaN, which the test never counts", "checks"),
    "C-18": ("it does, on as many SMs as their card has and with their four heads", "wave"),
    "C-19": ("a wave of blocks, and by their clock a wait of the host", "wave"),
    "C-26": ("full fusion of RoPE pays where queries share a rotated key", "v8"),
    "C-31": ("the hybrid helps, but by no more than at their own shape", "decode"),
    "A-09": ("open at their main shape; with larger heads memory is far from its peak", "attention"),
}

KINDS = {  # of a claim, in words
    "universal": "says of all cases what one case refutes",
    "count": "prints a count or a size that comes out otherwise",
    "cause": "names a cause; removing it closes less than half of the gap",
    "number": "prints a ratio; ours is 1, or on the other side of it",
}


def wrongs(e: Evidence) -> Table:
    """The number of wrong claims of each kind."""
    heads = (tests[0] for tests in judge.recorded(e.record).values())
    found = Counter(head["kind"] for head in heads if head["verdict"] in FALLS)
    rows = [(words, str(found[kind])) for kind, words in KINDS.items() if found[kind]]
    header = ("a wrong claim", "claims")
    return Table(header, rows, header[1:], id="wrong-claims", source=DECIDED, title="Of what kind the wrong claims are")


def headlines(e: Evidence) -> Table:
    """The documents' main claims: verdict, what the story found, and where."""
    known, verdicts = {claim.id: claim.claim for claim in judge.claims()}, judge.recorded(e.record)
    rows = [
        (f"{escape(known[id])} {to(id, LEDGER)}", verdict_mark(verdicts[id][0]["verdict"]),
         f"{words} (<a href='{page}.html'>{page}</a>)")
        for id, (words, page) in FOUND.items()
    ]  # fmt: skip
    header = ("what the documents say", "verdict", "what the story found")
    return Table(header, rows, id="main-claims", source=DECIDED, title="The main claims")
