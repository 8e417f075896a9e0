"""python -m tests.cards 8.9 DIR [--studies log,...] [--no-counters] [--no-verdicts] ...: write a made-up card."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from analysis.measure.studies import STUDIES, studies

from . import ANOTHER, CARDS, PARTS, write

parser = argparse.ArgumentParser(prog="python -m tests.cards", description="Write the measurements of a made-up card.")
parser.add_argument("card", choices=(*CARDS, ANOTHER))
parser.add_argument("folder", type=Path, help="where its folder is made; not below data/")
parser.add_argument("--studies", default="all", help=f"some of, separated by commas: {', '.join(STUDIES)}")
parser.add_argument("--errors", action="store_true", help="some checks ran out of memory")
parser.add_argument("--gaps", action="store_true", help="some pairs have no rows")
for part in PARTS:
    parser.add_argument(f"--no-{part}", dest="without", action="append_const", const=part, default=[])
options = parser.parse_args()
try:
    names = [study.name for study in studies(options.studies)]
    print(write(options.card, options.folder, names, options.without, options.errors, options.gaps))
except ValueError as error:
    sys.exit(f"cards: {error}")
