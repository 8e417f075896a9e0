"""A progress bar for a terminal, and for a notebook or a job's log, where no state replaces the one before."""

from __future__ import annotations

import functools
import sys

from tqdm import tqdm as _tqdm

tqdm = functools.partial(_tqdm, mininterval=0.1 if sys.stderr.isatty() else 10.0)  # seconds between two states
