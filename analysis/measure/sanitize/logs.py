"""Reads what compute-sanitizer prints around a process that marks in the same stream what it is doing.

A report begins with a line at the margin and goes on with indented ones:

    ========= Invalid __global__ read of size 4 bytes
    =========     at c0012_l0_rotate_tokens+0x120
    =========     by thread (0,0,0) in block (33,0,0)
    =========     Address 0x7f3c7ec01000 is out of bounds

It is attributed by the kernel's name, which holds case and launch, and by the last marker where it names no kernel. The
words follow the documentation of versions 2021 to 2025; a report that begins otherwise is "unparsed", never dropped.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

PLANTED = -1  # the case of the planted kernel
PLANTED_NAME = "planted"

KERNEL_NAME = re.compile(r"\bc(\d{4,})_l(\d+)_(\w+)")
PREFIX = re.compile(r"={8,} ?(.*)")
GOES_ON = re.compile(
    r"\s{2,}|(?:at|by|and|in) |(?:Read|Write|Atomic\w*) Thread |Address |Access to |Current Value|Saved host|Host Frame"
    r"|Device Frame|Barrier is located|\[\d+ hazards?\]"
)
SUMMARY = re.compile(r"(?:ERROR|RACECHECK|LEAK) SUMMARY: ")
QUIET = re.compile(r"COMPUTE-SANITIZER|Target application returned an error|Error: process didn't terminate success")
FINDINGS = [
    (re.compile(pattern), finding)
    for pattern, finding in (
        (r"Race reported between", "race"),
        (r"hazard detected (?:\([^)]*\) )?at", "race"),
        (r"Potential invalid __shared__", "race"),  # a block of the cluster may not have begun, or may have ended
        (r"Invalid __\w+__", "out_of_bounds"),
        (r"Uninitialized __\w+__", "uninitialised"),
        (r"Divergent thread\(s\) in warp", "divergent_warp"),
        (r"Barrier error detected|Warpgroup MMA sequence error|Deadlock detected", "divergent_barrier"),
        (r"Internal Sanitizer Error", "not_checked"),
    )
]
RACING = re.compile(r"(?:Read|Write|Atomic)\w*(?: access| Thread \([\d, ]+\)) at .*?(0x[0-9a-f]+)", re.IGNORECASE)
HAZARD_ADDRESS = re.compile(r"hazard detected (?:\([^)]*\) )?at __shared__ (0x[0-9a-f]+)", re.IGNORECASE)
ADDRESS = re.compile(r"(?:Address|Access to|shared address) (?:is )?(0x[0-9a-f]+)", re.IGNORECASE)


def kernel_name(case: int, launch: int, kernel: str) -> str:
    """The name under which a case launches a kernel."""
    return f"c{case:04d}_l{launch}_{kernel}"


def marker(**content: Any) -> str:
    """A line of the watched process between the reports."""
    return f"@@ {json.dumps(content)} @@\n"


def read_marker(line: str) -> dict[str, Any] | None:
    """What the marker at the end of a line says, or None where there is none."""
    at, end = line.find("@@ {"), line.rstrip()
    if at < 0 or not end.endswith("} @@"):
        return None
    try:
        return json.loads(end[at + 3 : -3])
    except ValueError:
        return None


class Report(NamedTuple):
    """One report. `address` is in bytes, in shared memory where `shared`; `instructions` are the offsets that race."""

    finding: str
    case: int | None
    launch: int | None
    kernel: str
    shared: bool
    address: int | None
    instructions: tuple[int, ...]


@dataclass
class Log:
    """What one log holds, by case. `heard` are those after which the process and the tool came to their end.

    `unparsed` counts the first lines of reports that are not understood and of those in which a tool says that it
    could not check.
    """

    reports: dict[int | None, set[Report]] = field(default_factory=dict)
    heard: set[int] = field(default_factory=set)
    refused: dict[int, str] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    buffers: dict[int, dict[str, list[int]]] = field(default_factory=dict)
    unparsed: Counter[str] = field(default_factory=Counter)

    def planted(self, finding: str) -> bool:
        return any(report.finding == finding for report in self.reports.get(PLANTED, ()))


def read_report(lines: list[str], running: int | None) -> Report:
    """What a report says, its lines without the prefix. `running` is the case it is about if it names no kernel."""
    head, text = lines[0], " ".join(line.strip() for line in lines)
    finding = next((name for pattern, name in FINDINGS if pattern.search(head)), "unparsed")
    if finding == "out_of_bounds" and "misaligned" in text:
        finding = "misaligned"
    named = KERNEL_NAME.search(text)
    case, launch, kernel = (int(named[1]), int(named[2]), named[3]) if named else (running, None, "")
    if not named and re.search(rf"\b{PLANTED_NAME}\b", text):
        case, kernel = PLANTED, PLANTED_NAME
    shared = "__shared__" in head
    instructions: tuple[int, ...] = ()
    address = HAZARD_ADDRESS.search(head) or ADDRESS.search(text)
    if "Race reported" in head or "hazard detected" in head:
        shared = True
        instructions = tuple(int(offset, 16) for offset in RACING.findall(text))
        address = HAZARD_ADDRESS.search(head)
    return Report(finding, case, launch, kernel, shared, int(address[1], 16) if address else None, instructions)


class Reader:
    """Takes a log line by line; `log` is complete after `close`."""

    def __init__(self) -> None:
        self.log = Log()
        self._held = ""  # the beginning of a line that a marker cut in two
        self._report: list[str] = []
        self._report_case: int | None = None
        self._begin_process()

    def _begin_process(self) -> None:
        self._running: int | None = None
        self._done: set[int] = set()
        self._summary = False
        self._cut = False

    def feed(self, line: str) -> None:
        content = read_marker(line)
        if content is not None:
            self._held += line[: line.find("@@ {")]
            self._mark(content)
            return
        match = PREFIX.match((self._held + line).rstrip("\r\n"))
        self._held = ""
        if match:
            self._tool(match[1])

    def _mark(self, content: dict[str, Any]) -> None:
        if "case" in content:
            case = self._running = content["case"]
            self.log.buffers.setdefault(case, {}).update(content.get("buffers", {}))
            if "refused" in content:
                self.log.refused[case] = content["refused"]
            if "failed" in content:
                self.log.failed[case] = content["failed"]
        if "done" in content:
            self._done.add(content["done"])
        if "ended" in content:
            self.close()

    def _tool(self, text: str) -> None:
        if SUMMARY.match(text):
            self._end_report()
            self._summary = True
            self._cut = self._cut or "not printed" in text
        elif not text.strip():
            self._end_report()
        elif self._report and GOES_ON.match(text):
            self._report.append(text)
        else:
            self._end_report()
            self._report, self._report_case = [text], self._running

    def _end_report(self) -> None:
        if self._report and not QUIET.search(self._report[0]):
            report = read_report(self._report, self._report_case)
            self.log.reports.setdefault(report.case, set()).add(report)
            if report.finding in ("unparsed", "not_checked"):
                self.log.unparsed[self._report[0].strip()] += 1
        self._report = []

    def close(self) -> None:
        """The process ended: what it did counts if the tool lived to sum up, and printed everything."""
        self._end_report()
        if self._summary and not self._cut:
            self.log.heard |= self._done
        self._held = ""
        self._begin_process()


def read_log(lines: Iterable[str]) -> Log:
    reader = Reader()
    for line in lines:
        reader.feed(line)
    reader.close()
    return reader.log
