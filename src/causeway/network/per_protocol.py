"""A scenario that runs under several protocols: ``[protocols.NAME]`` has the options under the protocol of that name,
in the place of ``[options]``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from causeway.model.errors import InvalidInput
from causeway.model.text import unknown
from causeway.protocols.registry import names

PROTOCOLS = "protocols"
"""The table with a table for each protocol."""


def with_own_options(document: Mapping[str, Any], protocol: str, path: str) -> dict[str, Any]:
    """Return a scenario's tables without those of other protocols; where ``protocol`` has one of its own, that is
    ``options``.

    Raises ``InvalidInput`` for a table of a protocol that nobody knows, and for one that is no table.
    """
    given = document.get(PROTOCOLS, {})
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{path}: {PROTOCOLS}: must be tables, as [{PROTOCOLS}.{names()[0]}]")
    for name, options in given.items():
        if name not in names():
            raise InvalidInput(f"{path}: {PROTOCOLS}.{name}: {unknown('protocol', name, names())}")
        if not isinstance(options, Mapping):
            raise InvalidInput(f"{path}: {PROTOCOLS}.{name}: must be a table of options")
    rest = {key: value for key, value in document.items() if key != PROTOCOLS}
    return rest if protocol not in given else {**rest, "options": dict(given[protocol])}
