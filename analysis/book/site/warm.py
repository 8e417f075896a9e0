"""The tables of a card, read once: chapters run in processes forked from one that has imported this."""

from __future__ import annotations

import contextlib
import gc
import os

from ...models import profiles
from ...records.current import complete_runs
from ...records.files import DataError, gpu_folder, parsed
from ...records.measured import Measured
from ...verdicts import facts

CARD = "FUSED_PE_CHAPTERS_OF"  # the card's folder, while its chapters run


def read(gpu: str) -> None:
    """Read what most chapters ask for; what is missing or damaged is for the chapter to say."""
    with contextlib.suppress(DataError, OSError):
        facts.read_once(gpu_folder(gpu))
        profiles.launches(gpu_folder(gpu))
        for study in complete_runs(parsed(gpu_folder(gpu) / "runs.csv", "runs")):
            Measured.load(gpu, study)


if gpu := os.environ.get(CARD):
    read(gpu)
    gc.freeze()  # no chapter looks through what all share for what it may free
