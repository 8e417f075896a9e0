"""Evidence about one card: loaded once, with one API and one type of answers; evidence.py has an example."""

from .compare import TIE, Comparison, every
from .estimates import Estimate, Estimates, maximum
from .evidence import Evidence, said, stated
from .known import Known, NotMeasured, Undecided
from .origin import COUNTED, DECIDED, Part, Source, computed, counters_of, measured, published_on
from .study import Check, Study
