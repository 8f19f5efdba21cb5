"""Names of columns as a mapping knows them, however a file spells them."""

from __future__ import annotations

from collections.abc import Sequence

from causeway.ingest.chunks import BadFile
from causeway.ingest.mapping import MappingDocument
from causeway.model.text import shown

_IGNORED = str.maketrans("", "", " _-")


def folded(name: str) -> str:
    """Return a name without what does not count where names are compared loosely: case, spaces, ``-`` and ``_``."""
    return name.translate(_IGNORED).lower()


def names_as_known(names: Sequence[str], mapping: MappingDocument, where: str) -> list[str]:
    """Return the names of a file's columns as the mapping has them; those that it does not know are as they were.

    Of names that are compared loosely one that is spelt the same is that column; of others at most one may be. Raises
    ``BadFile``.
    """
    if mapping.names == "exact":
        return list(names)
    wanted = mapping.columns()
    missing = {folded(name): name for name in sorted(wanted - {*names}, reverse=True)}
    found: dict[str, str] = {}
    known = [*names]
    for place, name in enumerate(names):
        meant = missing.get(folded(name))
        if meant is None or name in wanted:
            continue
        if meant in found:
            text = f"{where}: columns {shown(found[meant])} and {shown(name)} are both {meant}; one may be there"
            raise BadFile(text, "column_twice")
        found[meant], known[place] = name, meant
    return known


__all__ = ["folded", "names_as_known"]
