"""Which versions have a page of the book, and on which page each of the others stands."""

from __future__ import annotations

from kernels import VERSIONS, Version


def has_page(version: Version) -> bool:
    """Whether it is a version of the log, but not a build of one with other flags, or V8 or another that users call."""
    return not (version.is_peer or version.ablation or version.control_of or version.built_from != version.id)


def page_of(name: str) -> str:
    """The version on whose page one stands: itself, or that of which it changes something; of a peer its family.

    Raises: KeyError for an unknown version.
    """
    version = VERSIONS[name]
    if has_page(version):
        return name
    changed = version.control_of or (version.built_from if version.built_from != name else version.parent)
    return page_of(changed) if changed else version.family


def address(name: str) -> str:
    """The file and anchor of a version among the pages of the versions."""
    page = page_of(name)
    return f"{page}.html" if page == name else f"{page}.html#{name}"
