"""Evidence about one card: loaded once, with one API and one type of answers.

from analysis.evidence import Evidence

e = Evidence.load("nvidia-h200")
e.speedup("rope_v7", "rope_separate")    # Estimates by head dim, above 1 is faster
"""

from .compare import TIE, Comparison, every
from .estimates import Estimate, Estimates, maximum
from .evidence import Evidence, said, stated
from .known import Known, NotMeasured, Undecided
from .origin import COUNTED, DECIDED, Part, Source, computed, counters_of, measured, published_on
from .study import Check, Study
