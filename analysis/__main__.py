"""`python -m analysis COMMAND`: build the book, measure on a GPU, or count in the emulator."""

from __future__ import annotations

import importlib
import sys

COMMANDS = {
    "build": "execute the notebooks and render the book",
    "measure": "check and time a study on the GPU at hand",
    "tune": "search the shapes of V8 on the GPU at hand, and what each part of its kernel costs",
    "counters": "read hardware counters with Nsight Compute",
    "sanitize": "run every version under compute-sanitizer's tools",
    "claims": "give every claim of the documents its verdict",
    "resources": "list registers, spills and occupancy for every target",
    "counts": "count instructions, sectors and wavefronts in the emulator",
    "hashes": "map recorded hashes to those of a new way of hashing",
    "launches": "record digests of what every version launches, which a move must not change",
    "advise": "say whether to fuse RoPE into attention, by a model of what was measured",
    "browse": "open the rendered pages in headless Chromium: what they ask the network for, what fails",
    "mutations": "break kernels on purpose and see whether the checks notice",
}
MODULES = {"sanitize": "sanitizers", "advise": "cost_model"}


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] not in COMMANDS:
        print("usage: python -m analysis COMMAND [--help]", file=sys.stderr)
        for name, about in COMMANDS.items():
            print(f"  {name:9s} {about}", file=sys.stderr)
        return 2
    command, *rest = arguments
    try:
        return importlib.import_module(f"analysis.{MODULES.get(command, command)}").main(rest)
    except KeyboardInterrupt:
        print(f"\n{command}: interrupted; everything finished is kept, and the next call goes on", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
