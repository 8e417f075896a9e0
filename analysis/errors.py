"""Errors whose message is all that a reader needs to be told: a command prints it as one line, without a traceback.

Any function may raise one. A docstring names only those that its callers catch.
"""

REFUSED = 3  # exit code of a command that the machine refuses


class Failure(Exception):
    """The message says what went wrong, and what was kept."""

    def _render_traceback_(self) -> list[str]:
        """The sentence alone, which a notebook shows without a traceback."""
        return [str(self)]


class DataError(Failure, ValueError):
    """A file under data/ is missing, damaged or not what its schema says."""


class MeasureError(Failure, RuntimeError):
    """Measuring could not start or go on; what was measured before is on disk."""


class Refused(Failure):
    """The cause is the machine: a missing program, or a missing permission."""
