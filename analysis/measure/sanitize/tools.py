"""Runs the tools of compute-sanitizer, each around a process of `program`, and starts another where one dies."""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from kernels import Unsupported
from kernels.runtime.compile import CompileError, assembled, require_target
from kernels.runtime.gpu import device_target

from ...records.files import ROOT
from ..machine import environment, identity, now
from ..refused import Refused
from ..workers import compile_each
from . import program
from .cases import MODES, Case, Mode, SanitizeError, Session, cases
from .logs import PLANTED, marker, read_marker

COMMON_OPTIONS = (
    "--destroy-on-device-error kernel",
    "--print-limit 0",
    "--show-backtrace device",
    "--target-processes application-only",
    "--launch-timeout 300",
)
FIRST_PORT, PORTS = 49_152, 20
TIMEOUT = 300.0
RESTARTS = 12


class NoSanitizer(Refused, SanitizeError):
    """There is no compute-sanitizer on this machine."""


def options(mode: Mode, help_text: str) -> list[str]:
    """The command-line options of a mode that this compute-sanitizer knows; shared memory is newer in initcheck."""
    port = FIRST_PORT + PORTS * list(MODES).index(mode.name)
    wanted = [f"--tool {mode.tool}", *COMMON_OPTIONS, f"--port {port}", *mode.options]
    known = [option for option in wanted if re.search(rf"{option.split()[0]}\b", help_text)]
    return [word for option in known for word in option.split()]


def find_sanitizer() -> str:
    """The path of compute-sanitizer. Raises: NoSanitizer naming where it was sought."""
    folders = [os.path.join(root, "bin") for root in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if root]
    path = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=os.pathsep.join(folders))
    if not path:
        raise NoSanitizer(
            f"compute-sanitizer is neither on the PATH nor in {' or '.join(folders)}; "
            "it comes with the CUDA toolkit: set CUDA_HOME to where that is"
        )
    return path


def _output(*command: str) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout


class Watch:
    """The process of one mode, and those that go on where it died. Its output is one log."""

    def __init__(self, mode: Mode, command: Sequence[str], folder: Path, count: int, seconds: float) -> None:
        self.mode, self.command, self.folder, self.count = mode, list(command), folder, count
        self.log = folder / f"{mode.name}.log"
        self.log.unlink(missing_ok=True)
        self.began = time.monotonic()
        self.deadline = self.began + seconds
        self.starts = 0
        self._start(PLANTED)

    def _start(self, first: int) -> None:
        self.first = first
        self.starts += 1
        self.offset = self.log.stat().st_size if self.log.exists() else 0
        application = (sys.executable, "-m", program.__name__, self.mode.name, str(self.folder), str(first))
        with open(self.log, "ab") as out:
            self.process = subprocess.Popen(
                [*self.command, *application], stdout=out, stderr=subprocess.STDOUT, cwd=ROOT, start_new_session=True
            )

    def _last_begun(self) -> int | None:
        """The last case that the process at hand began, or None before the first; `count` when it went through."""
        last = None
        with open(self.log, encoding="utf-8", errors="replace") as file:
            file.seek(self.offset)
            for line in file:
                content = read_marker(line)
                if content and content.get("finished"):
                    return self.count
                if content and "case" in content:
                    last = content["case"]
        return last

    def finished(self) -> bool:
        """Whether all is done; starts another process if this one died on the way."""
        if self.process.poll() is None:
            if time.monotonic() < self.deadline:
                return False
            self.stop()
        with open(self.log, "ab") as out:
            out.write(("\n" + marker(ended=self.process.returncode)).encode())
        last = self._last_begun()
        in_time = time.monotonic() < self.deadline and self.starts <= RESTARTS
        if last is not None and last < self.count - 1 and in_time:
            self._start(last + 1)
            return False
        how = "done" if last == self.count else f"ended with exit code {self.process.returncode}, {self._last_words()},"
        self._compress()
        seconds = time.monotonic() - self.began
        print(f"[sanitize] {self.mode.name}: {how} after {seconds:.0f} s, {self.starts} processes", flush=True)
        return True

    def _last_words(self) -> str:
        """The last line that the watched process, not the tool, printed of its own."""
        with open(self.log, encoding="utf-8", errors="replace") as file:
            file.seek(max(self.offset, self.log.stat().st_size - 100_000))
            own = [line.strip() for line in file if line.strip() and not line.startswith(("=====", "@@"))]
        return repr(own[-1] if own else "saying nothing")

    def _compress(self) -> None:
        with open(self.log, "rb") as plain, gzip.open(f"{self.log}.gz", "wb", compresslevel=6) as packed:
            shutil.copyfileobj(plain, packed)
        self.log.unlink()

    def stop(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(10)


def _assemble(chosen: Sequence[tuple[int, Case]], target: str) -> None:
    for index, case in chosen:
        with contextlib.suppress(Unsupported, CompileError):  # the watched process says so
            for number, launch in enumerate(case.plan(target).launches):
                require_target(launch, target)
                assembled(program.named_ptx(index, number, launch.kernel, target), target)


def _assemble_all(todo: Sequence[Case], target: str) -> None:
    """Fill the cache of compiled kernels, so that the watched processes compile nothing."""
    groups: dict[str, list[tuple[int, Case]]] = {}
    for index, case in enumerate(todo):
        groups.setdefault(case.version, []).append((index, case))
    compile_each(_assemble, list(groups.values()), target)


def sanitize(folder: Path, versions: str = "", jobs: int = len(MODES), seconds: float = TIMEOUT) -> Session:
    """Run every mode on the GPU at hand; its logs go to `folder`. Raises: SanitizeError, GpuError."""
    binary, folder = find_sanitizer(), folder.resolve()
    help_text = _output(binary, "--help")
    if "--tool" not in help_text:
        raise SanitizeError(f"{binary} --help does not answer: {help_text.strip()[-300:]}")
    todo = cases(versions)
    started, began = now(), time.monotonic()
    gpu = {**identity(), **environment()}
    lines = [line for line in _output(binary, "--version").splitlines() if line.strip()]
    run = started.replace("-", "").replace(":", "")
    session = Session(run, started, gpu, lines[-1].strip() if lines else "", not versions, todo)
    folder.mkdir(parents=True, exist_ok=True)
    session.save(folder)
    print(f"[sanitize] {len(todo)} cases on {gpu['name']}, run {run}, {binary} {session.sanitizer}; logs in {folder}")
    _assemble_all(todo, device_target())
    print(f"[sanitize] compiled after {time.monotonic() - began:.0f} s", flush=True)
    waiting = list(MODES.values())
    watches: list[Watch] = []
    try:
        while waiting or watches:
            while waiting and len(watches) < jobs:
                mode = waiting.pop(0)
                command = [binary, *options(mode, help_text)]
                watches.append(Watch(mode, command, folder, len(todo), seconds))
            watches = [watch for watch in watches if not watch.finished()]
            time.sleep(0.2)
    finally:
        for watch in watches:
            watch.stop()
    session.finished_at, session.seconds = now(), round(time.monotonic() - began, 1)
    session.save(folder)
    return session
