"""python -m tests.cards 8.9 DIR [--studies log,...]: write a made-up card."""

import argparse
from pathlib import Path

from analysis.measure.studies import studies

from . import write

parser = argparse.ArgumentParser(prog="python -m tests.cards", description="Write the measurements of a made-up card.")
parser.add_argument("capability")
parser.add_argument("folder", type=Path, help="where its folder is made; not below data/")
parser.add_argument("--studies", default="all")
options = parser.parse_args()
print(write(options.capability, options.folder, [study.name for study in studies(options.studies)]))
