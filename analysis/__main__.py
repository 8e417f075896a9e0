"""`python -m analysis [--data DIR] COMMAND`: build the book, measure on a GPU, count in the emulator, or show."""

import importlib
import os
import sys

from analysis.errors import REFUSED, Failure, Refused

COMMANDS = {  # the module whose `main` it calls, or the function named behind a colon; and what it does
    "build": ("book.build", "execute the notebooks and render the book"),
    "gpu": ("measure.gpu", "everything on the GPU at hand: check, measure, ..., claims and the book"),
    "measure": ("measure.run", "check and time a study on the GPU at hand"),
    "run": ("measure.one", "check one version on one problem, on a GPU time it, and say what its kernels take"),
    "op": ("measure.op", "check and time the op of kernels/op on the GPU at hand"),
    "counters": ("measure.counters", "read hardware counters with Nsight Compute"),
    "sanitize": ("measure.sanitize", "run every version under compute-sanitizer's tools"),
    "claims": ("claims.judge", "give every claim of the documents its verdict"),
    "resources": ("measure.static:resources", "list registers, spills and occupancy for every target"),
    "releases": ("measure.releases", "list registers of the CUDA C++ controls by release of CUDA"),
    "counts": ("measure.static:counts", "count instructions, sectors and wavefronts in the emulator"),
    "their_test": ("measure.their_test", "count in the emulator what the documents' test sees of the rebuilt kernels"),
    "hashes": ("measure.static:hashes", "map recorded hashes to those of a new way of hashing"),
    "launches": ("measure.static:launches", "record digests of kernels, which a move must not change"),
    "findings": ("findings", "say which findings of the book hold on a GPU"),
    "number": ("book.numbers", "say where the numbers of a finding are from: interval, rows, code"),
    "advise": ("models.advice", "say how rope_attention runs a shape, fused or not, and its times at the nearest"),
}
GO_ON = ("gpu", "measure", "op", "counters", "sanitize")  # after an interruption, with what is not done


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--data"] and len(arguments) > 1:
        os.environ["FUSED_PE_DATA"] = os.path.abspath(arguments[1])  # every process of this command reads it
        arguments = arguments[2:]
    if not arguments or arguments[0] not in COMMANDS:
        print("usage: python -m analysis [--data DIR, in place of data/measured] COMMAND [--help]", file=sys.stderr)
        for name, (_, about) in COMMANDS.items():
            print(f"  {name:10s} {about}", file=sys.stderr)
        return 2
    command, *rest = arguments
    module, _, function = COMMANDS[command][0].partition(":")
    try:
        return getattr(importlib.import_module(f"analysis.{module}"), function or "main")(rest)
    except ModuleNotFoundError as error:
        if not error.name or error.name.partition(".")[0] in ("analysis", "kernels"):
            raise
        print(f"{command}: the package {error.name} is not installed; make environment installs it", file=sys.stderr)
        return REFUSED
    except (Failure, OSError) as error:
        print(f"{command}: {error}", file=sys.stderr)
        return REFUSED if isinstance(error, Refused) else 1
    except KeyboardInterrupt:
        kept = "everything finished is kept, and the next call goes on" if command in GO_ON else "nothing was recorded"
        print(f"\n{command}: interrupted; {kept}", file=sys.stderr)
        return 130


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal's encoding may lack a sign
    sys.exit(main(sys.argv[1:]))
