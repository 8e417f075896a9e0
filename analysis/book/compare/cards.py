"""The columns of a comparison: what the write-up published, and the cards that were measured."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernels import Problem

from ...records import published
from ...records.files import DataError, card_name, gpu_folder, known_gpus, parsed, read_json
from ...records.measured import Measured
from ...tables.environment import clock
from ..notebook import try_load
from ..origin import Source, measured_in, published_on

PUBLISHED = "published"
STUDIES = ("log", "fp16")  # those that hold every shape with a published speedup


@dataclass(frozen=True)
class Card:
    """A column. `studies` has the latest complete run of each study; without rows, or None, where there is none."""

    slug: str
    label: str
    gpu: Mapping[str, Any] = field(default_factory=dict)
    studies: Mapping[str, Measured | None] = field(default_factory=dict)

    @property
    def is_published(self) -> bool:
        return self.slug == PUBLISHED

    def name(self, family: str) -> str:
        """The GPU: of what is published, the one of that family's documents."""
        return published.card(family) if self.is_published else card_name(self.slug, self.gpu)

    def evidence(self, problem: Problem) -> Measured | None:
        """The study that times a problem of the documents."""
        return self.studies.get("fp16" if problem.family == "fp16" else "log")

    @functools.cached_property
    def measured(self) -> list[Measured]:
        """The studies that there are."""
        return [each for each in self.studies.values() if each]

    @property
    def is_empty(self) -> bool:
        """Whether its folder holds no run yet."""
        return not any(each is not None for each in self.studies.values())

    @functools.cached_property
    def stale(self) -> list[str]:
        """The versions whose code has changed since they were measured: with these nothing is compared fairly."""
        return sorted({version for each in self.measured for version in each.stale_versions()})


def chosen(names: Sequence[str] = (), first: str = "") -> list[Card]:
    """The columns of these names, in their order; without names all there are: published, `first`, other cards.

    Raises: DataError where a name is unknown or given twice, where fewer than two are left, or for a damaged file.
    """
    known = [PUBLISHED, *sorted(known_gpus(), key=lambda slug: (slug != first, slug))]
    names = list(names) or known
    for name in names:
        if name not in known:
            raise DataError(f"no card is called {name!r}; known: {', '.join(known)}")
        if names.count(name) > 1:
            raise DataError(f"{name!r} is named {names.count(name)} times; a card is compared with others")
    if len(names) < 2:
        raise DataError(f"two or more are compared; given: {', '.join(names)}; known: {', '.join(known)}")
    gpus = {name: read_json(gpu_folder(name) / "gpu.json") for name in names if name != PUBLISHED}
    called = [card_name(slug, gpu).removeprefix("NVIDIA ") for slug, gpu in gpus.items()]
    labels = {slug: name if called.count(name) == 1 else slug for slug, name in zip(gpus, called)}
    return [
        Card(name, labels[name], gpus[name], {study: _load(name, study) for study in STUDIES})
        if name in gpus
        else Card(PUBLISHED, PUBLISHED)
        for name in names
    ]


def _load(slug: str, study: str) -> Measured | None:
    if parsed(gpu_folder(slug) / "runs.csv", "runs").empty:
        return None
    return try_load(slug, study) or Measured.nothing(slug, study)


def source_of(cards: Iterable[Card]) -> Source:
    """Where the numbers of these cards are from, for a figure."""
    sources = (
        published_on("rope") if card.is_published else measured_in(*card.measured)
        for card in cards
        if card.is_published or card.measured
    )
    return sum(sources, Source())


ABOUT = (  # of a card: words, and the column of runs.csv
    ("driver", "driver"),
    ("CUDA", "cuda"),
    ("Python", "python"),
    ("numba", "numba"),
    ("numba-cuda", "numba_cuda"),
    ("torch", "torch"),
    ("highest SM clock, MHz", "sm_mhz_max"),
    ("power limit, W", "power_limit_w"),
    ("throttling, by study", "throttle"),
    ("run", "run"),
    ("commit", "commit"),
)


def about(card: Card) -> dict[str, str]:
    """The card, the software and the clocks of its runs by what they are; empty texts where nothing is known."""
    versions = {version for each in card.measured for version in each.checks["version"]}
    code = f"{len(card.stale)} of {len(versions)} versions" if card.stale else "none" if versions else ""
    return {
        "GPU": "; half precision: ".join(dict.fromkeys(map(card.name, ("rope", "fp16")))),
        "compute capability": _text(card.gpu.get("compute_capability")),
        "SMs": _text(card.gpu.get("sms")),
        **{
            words: "; ".join(dict.fromkeys(_text(each.run.get(name)) for each in card.measured))
            for words, name in ABOUT
        },
        "SM clock after samples, MHz": "; ".join(dict.fromkeys(_text(clock(each)) for each in card.measured)),
        "rows of other code": code,
    }


def _text(value: Any) -> str:
    """A value of a card or a run; nothing where the machine does not say."""
    if value is None or value != value:
        return ""
    return f"{value:.0f}" if isinstance(value, float) else str(value)
