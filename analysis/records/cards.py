"""The old name of analysis/record/cards.py, until its last user is converted."""

import sys

from ..record import cards as _module
from ..record.cards import *  # noqa: F403

sys.modules[__name__] = _module
