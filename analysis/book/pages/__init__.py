"""The pages of the versions, made from data."""

from .measured import overview
from .records import Records, planned
from .write import FOLDER, contents, page, write

__all__ = ["FOLDER", "Records", "contents", "overview", "page", "planned", "write"]
