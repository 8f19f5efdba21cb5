"""The tables of a scenario as the text of a TOML file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from causeway.model.document import quoted

_BARE = re.compile(r"[A-Za-z0-9_-]+")

LARGEST = 2**63 - 1
"""The largest whole number that every reader of TOML knows; larger ones are written as digits in quotes."""


def text_of(document: Mapping[str, Any]) -> str:
    """Return the tables of a scenario as text. What is None is left out."""
    parts: list[str] = []
    _section(document, (), parts)
    return "\n".join(parts).lstrip("\n") + "\n"


def _section(table: Mapping[str, Any], path: tuple[str, ...], parts: list[str]) -> None:
    """Write the keys of a table, then the tables in it: those are sections of their own down to the second level."""
    below = [(key, value) for key, value in table.items() if _is_section(value) and len(path) < 2]
    for key, value in table.items():
        if value is not None and (key, value) not in below:
            parts.append(f"{_key(key)} = {_value(value)}")
    for key, value in below:
        name = ".".join(map(_key, (*path, key)))
        if isinstance(value, Mapping):
            if value:
                parts.append(f"\n[{name}]")
                _section(value, (*path, key), parts)
            continue
        for each in value:
            parts.append(f"\n[[{name}]]")
            parts.extend(f"{_key(one)} = {_value(found)}" for one, found in each.items() if found is not None)


def _is_section(value: Any) -> bool:
    return isinstance(value, Mapping) or (
        isinstance(value, list | tuple) and bool(value) and all(isinstance(each, Mapping) for each in value)
    )


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else quoted(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if -LARGEST <= value <= LARGEST else f'"{value}"'
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{_key(key)} = {_value(each)}" for key, each in value.items() if each is not None)
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(each) for each in value)}]"
    return quoted(str(value))
