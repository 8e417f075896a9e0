"""The pages of the versions, made from data."""

from .measured import overview
from .records import Records, planned
from .write import contents, page, write

__all__ = ["Records", "contents", "overview", "page", "planned", "write"]
