"""The tables of the chapters, by what they are about; how a table and its cells are written is in `tables/table.py`."""

from .answer import headlines, wrongs
from .claims import in_prose, ledger, verdicts
from .claims import summary as verdict_summary
from .environment import coverage, known_cards, machines, reruns, runs
from .overview import defects, overview
from .printed import printed
from .steps import parts, steps, suspects, traffic
from .tensor_cores import phases
from .v8 import v8_heads, v8_steps
