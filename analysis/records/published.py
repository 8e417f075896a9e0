"""The old name of analysis/record/published.py, until its last user is converted."""

import sys

from ..record import published as _module
from ..record.published import *  # noqa: F403

sys.modules[__name__] = _module
