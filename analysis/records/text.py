"""The old name of analysis/record/text.py, until its last user is converted."""

import sys

from ..record import text as _module
from ..record.text import *  # noqa: F403

sys.modules[__name__] = _module
