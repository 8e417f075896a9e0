"""The pages that are made from data: Markdown with places for values, which Jinja fills in."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ...tables.table import Table

FOLDER = Path(__file__).parent


def block(what: Table | str) -> str:
    """A text or table as a paragraph of its own; nothing of an empty one."""
    if isinstance(what, Table):
        what = what._repr_html_() if what.rows else ""
    return f"{what}\n\n" if what else ""


ENVIRONMENT = Environment(
    loader=FileSystemLoader(FOLDER), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
ENVIRONMENT.filters |= {"block": block, "e": escape}


def render(template: str, **values: Any) -> str:
    """A template with its values filled in. Raises: jinja2.UndefinedError for one that is missing."""
    return ENVIRONMENT.get_template(template).render(values).rstrip() + "\n"
