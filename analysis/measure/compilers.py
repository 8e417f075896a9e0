"""Whether torch and the compilers that are found on this machine serve the kernels; where no lock brought them, ask.

`python -m analysis.measure.compilers` compiles and assembles one kernel, from no cache.
"""

import os
import sys
import tempfile
from pathlib import Path

FIRST = "attention_baseline"


def main() -> int:
    try:
        import torch
        from cuda.bindings import nvjitlink

        from kernels import VERSIONS
        from kernels.checking.check import problems
        from kernels.runtime import cache, compile

        with tempfile.TemporaryDirectory() as folder:
            cache.FOLDER = Path(folder)
            (launch, *_) = VERSIONS[FIRST](problems(VERSIONS[FIRST])[0]).launches
            compile.assembled(compile.compile_ptx(launch.kernel), compile.EMULATED_TARGET)
    except Exception as error:  # what is missing, or too new for its neighbour, is said by whoever finds it
        print(f"[environment] torch and CUDA of this machine do not serve: {type(error).__name__}: {error}")
        print(f"[environment] CUDA_HOME, {os.environ.get('CUDA_HOME', 'not set')}, has to be of torch's CUDA;")
        print("[environment] make wheels CUDA=12 is for a torch built with CUDA 12, FULL=1 brings torch and CUDA along")
        return 1
    release = ".".join(map(str, nvjitlink.version()))
    print(f"[environment] torch {torch.__version__} from {torch.__path__[0]}, compilers of CUDA {release}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
