"""The old name of analysis/record/columns.py, until its last user is converted."""

import sys

from ..record import columns as _module
from ..record.columns import *  # noqa: F403

sys.modules[__name__] = _module
