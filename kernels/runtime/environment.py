"""Settings of the process that imports the kernels: environment variables, and its version of Numba CUDA.

FUSED_PE_CACHE: the folder of compiled kernels; unset or empty, `~/.cache/fused-positional-embeddings`; /dev/null, none.
FLASHINFER: the folder `flashinfer/data` of FlashInfer's package, whose headers its peers compile. FLASH3: the folder
of FlashAttention 3's package, unpacked. NUMBA_*: Numba reads these. `compile` always uses its own options; the
simulator is refused here.
"""

import contextlib
import importlib
import os
from importlib import metadata, util
from pathlib import Path

PACKAGE = Path(__file__).parent.parent
HERE = f"this is {PACKAGE}; if another package called {PACKAGE.name} is meant, run Python in another folder, or with -P"


def cache_folder() -> Path | None:
    """The folder for compiled kernels; None where there is no home folder."""
    with contextlib.suppress(RuntimeError):  # raised by pathlib if HOME is unset and the user has no entry
        return Path(os.environ.get("FUSED_PE_CACHE") or "~/.cache/fused-positional-embeddings").expanduser().absolute()
    return None


def library_folder(variable: str) -> Path | None:
    """The folder of a library that an environment variable names; None where it is unset."""
    folder = os.environ.get(variable)
    return Path(folder).expanduser().absolute() if folder else None


def require_numba_cuda() -> None:
    """Make `numba.cuda` refer to the package numba-cuda, as its .pth file does if Python has read it.

    Raises: ImportError, with a remedy, if a package is missing, `numba.cuda` was imported before, or Numba's simulator
    is on.
    """
    for name in ("numba", "numba_cuda", "torch"):
        if util.find_spec(name) is None:
            raise ModuleNotFoundError(f"{name} is not installed, which the kernels need; {HERE}", name=name)
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module("_numba_cuda_redirector")
    from numba import config, cuda

    if config.ENABLE_CUDASIM:
        raise ImportError("NUMBA_ENABLE_CUDASIM is set; the kernels need a real numba.cuda: unset it")
    if "numba_cuda" not in str(cuda.__file__):
        todo = "restart Python (in a notebook: the kernel), so that numba-cuda takes its place"
        raise ImportError(f"numba.cuda comes from {cuda.__file__}, not from the package numba-cuda: {todo}")


def refuse_foreign(name: str) -> None:
    """Say whose folder `kernels/` is, where Hugging Face's package of that name is installed and asked for a name.

    Raises: ImportError, which `from kernels import name` shows; not for a module of the folder.
    """
    if PACKAGE.name == "kernels" and not name.startswith("_") and util.find_spec(f"kernels.{name}") is None:
        with contextlib.suppress(metadata.PackageNotFoundError):
            metadata.version("kernels")
            raise ImportError(f"no {name} in kernels; {HERE}")
