"""What a machine lacks or forbids that a part of measuring needs: an answer, and no failure."""

REFUSED = 3  # exit code of a command that the machine refuses


class Refused(Exception):
    """Mixed into an error whose cause is the machine: a tool that is not there, a permission that is not given."""


def exit_code(error: Exception) -> int:
    return REFUSED if isinstance(error, Refused) else 1
