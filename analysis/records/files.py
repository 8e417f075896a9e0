"""The old name of analysis/record/files.py, until its last user is converted."""

import sys

from ..record import files as _module
from ..record.files import *  # noqa: F403

sys.modules[__name__] = _module
