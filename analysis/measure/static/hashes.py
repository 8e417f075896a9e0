"""`python -m analysis hashes BEFORE`: lead recorded hashes to those that the same code has here.

For a commit that changes how code is hashed, or moves it so that hashes change, and no kernel: BEFORE is a checkout of
the commit before. data/hashes.csv gets a row for every version whose hash differs; data/launches.csv, recorded before,
then tells (`launches --check`, and a sample in the tests) whether the kernels are the same.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from kernels import VERSIONS

from ...records.current import today
from ...records.files import HASHES, read_records, write_table

PRINT = """
import json
from kernels import VERSIONS
from kernels.runtime.identity import source_hash
print(json.dumps({name: source_hash(version) for name, version in VERSIONS.items()}))
"""


def hashes_in(checkout: Path) -> dict[str, str]:
    """The hash of every version as another checkout of this project computes it."""
    done = subprocess.run([sys.executable, "-c", PRINT], cwd=checkout, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis hashes", description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path, help="a checkout of the commit before the change")
    parser.add_argument("versions", nargs="*", help="only these, whose kernels the change left alone (default: all)")
    options = parser.parse_args(arguments)
    before = hashes_in(options.before)
    chosen = set(options.versions or VERSIONS) & set(VERSIONS)
    later = {old: today(name) for name, old in before.items() if name in chosen and old != today(name)}
    rows = [{**row, "new": later.get(row["new"], row["new"])} for row in read_records(HASHES, "hashes")]
    known = {row["new"] for row in rows}
    rows += [
        {"old": old, "new": later[old], "version": name}
        for name, old in before.items()
        if later.get(old) not in {None, *known}
    ]
    write_table(HASHES, "hashes", rows)
    print(f"[hashes] {len(rows)} rows in {HASHES}")
    return 0
