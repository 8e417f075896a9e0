"""A step of a ladder, as a notebook shows it: its speed, what it changes in its predecessor, and why."""

from kernels import version

from ..evidence import Evidence
from ..tables.steps import told
from ..tables.table import short
from .findings import paragraph
from .notebook import say
from .sources import diff_text


def step(e: Evidence, name: str, *findings: str) -> None:
    """Show a diff of a version against its predecessor, folded, its speed, and findings that say why.

    Of one that has only more shared memory than another the diff is that of the other. Raises: DataError.
    """
    origin = version(version(name).variant_of or name)
    diff = diff_text(origin.id).rstrip() if origin.parent else ""
    lines = sum(line[:1] in "+-" and line[:3] not in ("+++", "---") for line in diff.splitlines())
    if diff:
        title = f"Diff against {short(origin.parent or '')}: {lines} lines"
        say(f"<details><summary>{title}</summary>\n\n```diff\n{diff}\n```\n\n</details>")
    say(told(e, name))
    if findings:
        say(paragraph(e, *findings))
