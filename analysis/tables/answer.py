"""Of what kind the wrong claims are."""

from collections import Counter

from ..claims import judge
from ..claims.rule import FALLS
from ..evidence import DECIDED, Evidence
from .table import Table

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
