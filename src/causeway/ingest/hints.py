"""Why nothing of a file could be taken: a hint of one line, from a look at its beginning.

Strategy: a file of JSON is parsed as one document first, then line by line. Names in the mapping that no record has
are compared with the names that records have.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from causeway.ingest.chunks import Stream, unpacked
from causeway.ingest.mapping import MappingDocument
from causeway.ingest.naming import folded
from causeway.ingest.row_sections import EventSection, fields_of, parts_of
from causeway.model.text import name_of, shown

MOST_DOCUMENT = 64 << 20
"""Bytes of a file that are parsed as one JSON document."""

_LINES, _DEPTH, _NAMED = 200, 6, 3
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def hint_for(stream: Stream, file: str, size: int, mapping: MappingDocument) -> str | None:
    """Return what may be wrong with a file of which no record could be taken.

    Args:
        stream: Its bytes, from the beginning on.
        file: Its name.
        size: Its length in bytes.
        mapping: How its records were read.

    Returns:
        A hint of one line, or None if nothing was found. Only files of JSON are looked at.
    """
    if mapping.format_of(file) != "jsonl":
        return None
    content = _beginning(unpacked(stream, file, size))
    lines = [line for line in content.split(b"\n")[:_LINES] if line.strip()]
    records = [found for line in lines if isinstance(found := _parsed(line), dict)]
    document = _parsed(content)
    if document is not None and (len(lines) > 1 or not _is_record(document, mapping)):
        return _of_document(document, file)
    if records:
        return _of_names(records, file, mapping)
    if lines and b"{" in lines[0] and isinstance(_parsed(lines[0][lines[0].index(b"{") :]), dict):
        return f"{file} has text before the JSON object of each line; cut it off"
    return f"{file} is read as JSON lines: one object a line"


def _beginning(stream: Stream) -> bytes:
    parts, left = [], MOST_DOCUMENT
    while left and (part := stream.read(min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _is_record(document: Any, mapping: MappingDocument) -> bool:
    """Return whether a document may be a record: it has a column of the mapping, or no arrays of objects."""
    if not isinstance(document, dict):
        return False
    return any(_at(document, column) is not None for column in mapping.columns()) or not list(_arrays(document))


def _of_document(document: Any, file: str) -> str:
    """Return the hint about a file that is one JSON document: the arrays of objects in it."""
    text = f"{file} is one JSON document; JSON lines have one object a line"
    arrays = sorted(_arrays(document), key=lambda each: -each[1])[:_NAMED]
    if not arrays:
        return text
    named = ", ".join(f"{name_of(path)} ({count:,} objects)" for path, count in arrays)
    return f"{text}; its arrays: {named}; for example: jq -c '{arrays[0][0]}[]' {file} > records.jsonl"


def _arrays(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, int]]:
    """Yield the arrays of objects in a document: their paths, as jq has them, and how many objects each has."""
    if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        yield path or ".", len(value)
    elif isinstance(value, dict) and depth < _DEPTH:
        for key, inner in value.items():
            step = f".{key}" if _PLAIN_KEY.fullmatch(key) else f"{'' if path else '.'}[{json.dumps(key)}]"
            yield from _arrays(inner, path + step, depth + 1)


def _of_names(records: list[dict[str, Any]], file: str, mapping: MappingDocument) -> str | None:
    """Return the hint about names of the mapping that no record has, or values that no event wants."""
    known = sorted({path for record in records for path in _paths(record)})
    spelt = {folded(path) for path in known} if mapping.names == "loose" else {*known}
    for event in map(mapping.of, mapping.rows):
        for use, columns in _columns(event):
            if not any((folded(each) if mapping.names == "loose" else each) in spelt for each in columns):
                return f"no record of {file} has {columns[0]} ({use}); {_nearest(columns[0], known)}"
    for event in mapping.events:
        for column, allowed in event.where.items():
            values = list(dict.fromkeys(shown(_at(record, column)) for record in records))[:_NAMED]
            if not any(str(_at(record, column)) in allowed for record in records):
                return f"events of the mapping want {column} = {', '.join(allowed)}; {file} has {', '.join(values)}"
    return None


def _columns(event: EventSection) -> Iterator[tuple[str, list[str]]]:
    """Yield the columns that an event cannot do without, of several the first that is there, and what for."""
    for column in event.where:
        yield "where", [column]
    for name, field in fields_of(event):
        for part in parts_of(field):
            if part.column and not (part.optional or part.join or part.otherwise is not None):
                yield name, part.column


def _nearest(name: str, known: list[str]) -> str:
    lower = {path.lower(): path for path in known}
    near = difflib.get_close_matches(name.lower(), lower, n=1) or [
        path for path in lower if path.rsplit(".", 1)[-1] == name.lower().rsplit(".", 1)[-1]
    ]
    return f"did you mean {lower[near[0]]}?" if near else f"it has {', '.join(known[:8])}"


def _paths(value: dict[str, Any], before: str = "") -> Iterable[str]:
    for key, inner in value.items():
        yield before + key
        if isinstance(inner, dict):
            yield from _paths(inner, f"{before}{key}.")


def _at(record: Any, path: str) -> Any:
    for step in path.split("."):
        record = record.get(step) if isinstance(record, dict) else None
    return record


__all__ = ["hint_for"]
