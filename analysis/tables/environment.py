"""The card and its software, the runs that its numbers are from, and how well they repeat."""

import math
import re
from collections.abc import Sequence
from html import escape
from typing import Any

import pandas as pd

from ..evidence import Evidence, Source, Study, computed, measured, pool
from ..evidence.current import called_today, today
from ..models.waves import CARDS
from ..record import published
from ..record.files import DATA, ROOT, known_gpus, read_json
from ..record.runs import summary
from ..record.text import NOTHING, number, short_commit
from ..studies import OP, STUDIES, TIMERS
from .table import Table, code

CEILINGS = (  # of gpu.json, with words, unit and digits
    ("read_gb_s", "DRAM read, at most", "GB/s", 0),
    ("l2_read_gb_s", "L2 read, at most", "GB/s", 0),
    ("fp32_tflops", "fp32 multiply-add, at most", "TFLOP/s", 1),
    ("tensor_tflops", "bfloat16 matrix product, at most", "TFLOP/s", 1),
    ("empty_kernel_us", "empty kernel in a graph", "µs", 2),
    ("empty_launch_us", "empty launch from the host", "µs", 2),
)
OF_RUN = {  # columns of a run, with their words
    "sm_mhz_max": "SM clock, not locked, at most, MHz", "power_limit_w": "power limit, W", "driver": "driver",
    "cuda": "CUDA", "python": "Python", "numba": "numba", "numba_cuda": "numba-cuda", "torch": "PyTorch",
}  # fmt: skip


def source_of(cards: Sequence[Evidence]) -> Source:
    return sum((measured(e, "log", "fp16", "slices", "filled") for e in cards if e.study("log")), Source())


def named(cards: Sequence[Evidence]) -> list[str]:
    """The heads of columns of these cards: the folder where two cards have one name."""
    names = [e.card for e in cards]
    return [escape(e.slug if names.count(e.card) > 1 else e.card.removeprefix("NVIDIA ")) for e in cards]


def machines(*cards: Evidence) -> Table:
    """The GPUs, what they reach at most, and software and clocks of their latest runs of the documents' shapes."""

    def about(e: Evidence) -> dict[str, Any]:
        gpu, run, studies = e.gpu, e.study("log").run, [*filter(None, map(e.study, STUDIES))]
        older = {changed: _older([study for study in studies if STUDIES[study.name].timers], changed)
                 for changed in ("code", "assembler")}  # fmt: skip
        throttled = {f"{study.run['throttle']} ({study.name})" for study in studies if study.run["throttle"] != "none"}
        return {
            "compute capability": gpu["compute_capability"],
            "SMs": gpu["sms"],
            "memory, L2": f"{gpu['memory_bytes'] / 2**30:.0f} GiB, {gpu['l2_bytes'] / 2**20:.0f} MiB",
            **{what: number(gpu["ceilings"].get(key, math.nan), unit, n) for key, what, unit, n in CEILINGS},
            "SM clock after samples, MHz": e.study("log").timings["sm_mhz"].astype(float).median(),
            **{words: run.get(name) for name, words in OF_RUN.items()},
            "commit": short_commit(run["commit"]),
            "throttling seen": "; ".join(sorted(throttled)) or "none",
            "measured before their code changed": older["code"],
            "timed by another assembler, of the same code": older["assembler"],
        }

    columns = [{what: _text(value) for what, value in about(e).items()} for e in cards]
    rows = [(what, *(column[what] for column in columns)) for what in columns[0]]
    alike = [row for row in rows if len(cards) > 1 and len({*row[1:]}) == 1]
    caption = f"The same on all of them: {'; '.join(f'{what} {value}' for what, value, *_ in alike)}." if alike else ""
    rows, title = [row for row in rows if row not in alike], "The cards and their software"
    return Table(("what", *named(cards)), rows, caption=caption, id="machines", source=source_of(cards), title=title)


def what_changed(study: Study, version: str) -> str:
    """The change since a study timed or checked a version: of its "code", or its "assembler" alone; else ""."""
    if version not in study.stale_versions():
        return ""
    timed, checked = (rows[rows["version"] == version] for rows in (study.timings, study.checks))
    same = all(called_today(each) == today(version) for each in (checked if timed.empty else timed)["source_hash"])
    return "assembler" if same else "code"


def _older(studies: Sequence[Study], changed: str) -> str:
    """The versions of which a study has rows of earlier code alone, or of today's by another assembler."""
    found: dict[str, list[str]] = {}
    for study in studies:
        for name in study.stale_versions():
            if what_changed(study, name) == changed:
                found.setdefault(name, []).append(study.name)
    return "; ".join(f"{name} ({', '.join(names)})" for name, names in found.items()) or "none"


def _text(value: Any) -> str:
    """A value of a card or a run; nothing where the machine does not say."""
    if value is None or value != value:
        return ""
    return escape(f"{value:.0f}" if isinstance(value, float) else str(value))


def known_cards() -> Table:
    """A row for each card: the numbers that documents print, and what was compiled, counted and timed here."""
    recorded = {e.card: e for e in map(Evidence.load, known_gpus())}
    names = {"H100 (SXM), H200": tuple(recorded)}
    compiled = pd.read_csv(DATA / "resources.csv").groupby("target")["version"].nunique()
    emulated = pd.read_csv(DATA / "counts.csv").groupby("target")["version"].nunique()
    printed = published.load()["gpu"].value_counts()
    rows = []
    for card in CARDS:
        for name in names.get(card.name, (card.name,)):
            e = recorded.get(name)
            plain = name.removeprefix("NVIDIA ").removesuffix(", the authors'")
            given = sum(n for gpu, n in printed.items() if gpu.removeprefix("NVIDIA ") == plain)
            timed = sum(bool(e.study(study.name)) for study in STUDIES.values() if study.timers) if e else 0
            counted = e.record.frame("counters")["version"].nunique() if e else 0
            counts = (given, compiled.get(card.target, 0), emulated.get(card.target, 0), counted, timed)
            rows.append((escape(name.removeprefix("NVIDIA ")), *(str(n) if n else NOTHING for n in counts)))
    header = (
        "GPU", "printed numbers", "compiled versions", "with counted instructions", "with counters", "timed studies",
    )  # fmt: skip
    caption = (
        "Printed: rows of data/published.csv that name the card. Compiled: versions whose registers and shared memory "
        "are known there. Counted instructions: versions whose PTX of that card the emulator counts. Counters: "
        "versions read by Nsight Compute. "
        f"Timed studies: of {sum(bool(study.timers) for study in STUDIES.values())}. The table of runs also lists what "
        "is no timed study: <code>matched</code>, calls of the op, counters and sanitizers."
    )
    source = computed("data/published.csv, resources.csv, counts.csv and the folders of data/measured")
    return Table(header, rows, header[1:], caption, id="known", source=source, title="What is known of which card")


def runs(e: Evidence) -> Table:
    """The run of each study, and each run of another part of `make gpu` that numbers come from; how long it took."""
    known, latest = e.record.frame("runs"), e.record.latest
    found = [dict(latest[name]) for name in (*STUDIES, *OP) if name in latest]
    for table in ("counters", "sanitizers"):  # each version's rows are of the last run that has it, complete or not
        read = (known["study"] == table) & known["run"].isin(e.record.frame(table)["run"])
        found += known[read].to_dict("records")
    rows = []
    for run in found:
        name = run["study"]
        processes = str(e.study(name).processes) if name in STUDIES and STUDIES[name].timers else NOTHING
        told = f"{run['seconds']:.0f}", processes, str(run["throttle"]), code(short_commit(str(run["commit"])))
        rows.append((code(name), f"<code>{run['run']}</code>", *told))
    header = ("study", "run", "seconds", "processes", "throttling seen", "commit")
    caption = (
        f"A run is a folder of data/measured/{e.slug}, named by its start (UTC): {summary(e.record.folder)}. "
        f"{sum(run['seconds'] for run in found) / 60:.0f} minutes of the {e.card}; of a run with 0 seconds the time is "
        "not recorded. A study without processes times nothing: <code>matched</code> only checks results, at "
        "shapes whose hardware counters are read."
    )
    return Table(header, rows, header[2:4], caption, id="runs", source=measured(e, *STUDIES))


def reruns(e: Evidence) -> Table:
    """A row for each chapter that measures: its studies, and the minutes that they took in their latest runs."""
    rows = []
    for path in sorted((ROOT / "analysis" / "notebooks").glob("*.ipynb")):
        text = "".join(line for cell in read_json(path, ("cells",))["cells"] for line in cell["source"])
        studies = re.findall(r'"(\w+)"', re.findall(r"load\(gpu, source(.*)\)", text)[0])
        took = [e.study(name).run["seconds"] for name in studies if e.study(name)]
        if len(took) == len(studies) > 0:
            rows.append((code(f"{path.stem}.ipynb"), ", ".join(map(code, studies)), f"{sum(took) / 60:.0f}"))
    caption = (
        f"Minutes: of the {e.card}, in the latest run of each study. A study that is measured already is not measured "
        "again."
    )
    header, title = ("chapter", "studies", "minutes"), "One chapter measured anew"
    return Table(header, rows, header[2:], caption, id="reruns", source=measured(e, *STUDIES), title=title)


def coverage(e: Evidence) -> Table | str:
    """Of the ratios of each run in turn, how many lie outside the intervals of the others, by timer."""
    found, rows = pool.coverage(e.record.ratios), []
    for timer in TIMERS:
        mine = found[found["timer"] == timer]
        later = mine[~mine["chose"]]
        if len(mine) and len(later):
            outside, apart = (each["outside"].sum() / each["ratios"].sum() for each in (mine, later))
            shares = (number(100 * each, "%", 1) for each in (outside, apart, mine["half"].median() - 1))
            rows.append((timer, str(mine["ratios"].sum()), *shares))
    if not rows:
        return f"*No run can be left out: that takes {pool.RUNS + 1} complete runs of the same code ({e.card}).*"
    complete = e.record.complete
    cards = complete.loc[complete["run"].isin(found["run"]), "uuid"].replace("", None).nunique()
    header = ("timer", "ratios", "outside, all runs", "outside, unseen runs", "half width, median")
    caption = (
        "Of 95 % intervals 5 % are due outside. "
        "Outside: of the interval that the other runs give. Unseen: the half of the runs held out when the rules were "
        "chosen. "
        f"On the {e.card}. Complete runs: {found['run'].nunique()}; single cards (by UUID) among them: {cards}."
    )
    title = "Ratios outside their intervals"
    return Table(header, rows, header[1:], caption, id="coverage", source=measured(e, "log"), title=title)
