"""Moved to `analysis.evidence.origin`."""

from ..evidence.origin import COUNTED as COUNTED
from ..evidence.origin import DECIDED as DECIDED
from ..evidence.origin import Part as Part
from ..evidence.origin import Source as Source
from ..evidence.origin import computed as computed
from ..evidence.origin import measured_in as measured_in
from ..evidence.origin import measured_on as measured_on
from ..evidence.origin import published_on as published_on
