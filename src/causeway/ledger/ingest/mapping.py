"""Mappings: the meaning of columns of recorded traffic, declared in a TOML file.

``mappings/`` has the built-in ones; a user's own file has the same form. ``docs/how-to/ingest.md`` describes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from causeway_proofs.errors import InvalidInput
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from causeway.config.document import read_document, validate_document
from causeway.config.section import U64_MAX, ScenarioSection
from causeway.core.text import parse_duration, suggest_known
from causeway.ledger.ingest import mapping_names, mappings_folder
from causeway.ledger.ingest.chunks import decompressed_name
from causeway.ledger.ingest.row_sections import (
    LISTED,
    Condition,
    EventSection,
    FieldsSection,
    HeaderSection,
    Text,
    ValueSection,
    WatermarkSection,
    as_list,
    is_empty,
    is_none,
    iterate_field_parts,
    iterate_fields,
)
from causeway.ledger.row_rules import PROMISE_OPTIONS, find_promise_fault, find_window_fault
from causeway.ledger.schema import HEADER, MAX_HEIGHT, MAX_REVISION, VALUE, LedgerEvent, LedgerKind

ENDINGS = {"csv": (".csv",), "jsonl": (".jsonl", ".ndjson", ".json"), "parquet": (".parquet",)}
"""File name endings of each format; .gz, .bz2 or .zst may follow."""

MAX_COUNT = 9_000_000_000_000
"""Maximum of seconds, blocks or messages in a guarantee or gap: as microseconds it fits 63 bits."""

DEADLINE = 86_400
"""Default deadline of messages, in seconds."""


def _moment(value: object) -> object:
    """Convert a TOML time or a text to a text in UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError("must be a time such as 2022-01-11T12:00:00Z") from None
    if not isinstance(value, datetime):
        raise ValueError("must be a time such as 2022-01-11T12:00:00Z")
    try:
        return (value if value.tzinfo is not None else value.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    except OverflowError:
        raise ValueError("must be a time of the years 1 to 9999") from None


def _event(value: str) -> str:
    if value not in [VALUE, HEADER, *(event.value for event in LedgerEvent)]:
        raise ValueError(f"must be one of {', '.join(LedgerEvent)}, {HEADER} or {VALUE}")
    return value


EventName = Annotated[str, AfterValidator(_event)]

ARRIVALS = tuple(
    event.value
    for event in (
        LedgerEvent.RECEIVED,
        LedgerEvent.EXECUTED,
        LedgerEvent.FAILED,
        LedgerEvent.ANSWERED,
        LedgerEvent.REJECTED,
    )
)
"""Events that show an arrival at the destination of a message."""
Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Moment = Annotated[str, BeforeValidator(_moment)]


_REVISED = re.compile(r"([0-9]{1,20})-([0-9]{1,20})")


def _height(value: object) -> object:
    """Accept an integer, or a height in IBC form: revision, ``-`` and height."""
    if isinstance(value, str) and _REVISED.fullmatch(value) and max(map(int, value.split("-"))) <= U64_MAX:
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= U64_MAX:
        return value
    raise ValueError("must be a height such as 2241421, or 1-2241421 with its revision")


def _seconds(value: object) -> object:
    """Convert seconds, or a duration such as ``1500ms``, to seconds; whole ones to an integer."""
    seconds = parse_duration(value) if isinstance(value, str) else value
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds <= MAX_COUNT:
        return int(seconds) if seconds == int(seconds) else float(seconds)
    raise ValueError(f"must be seconds from 0 to {MAX_COUNT}, or a duration such as 1500ms, 90s, 5min, 2h or 2d")


Height = Annotated[Any, BeforeValidator(_height)]
Seconds = Annotated[Any, BeforeValidator(_seconds)]


Format = Literal["csv", "jsonl", "parquet"]
Link = Literal["counterparty", "redundant", "errors", "order", "continues"]
"""Facts found in other records: the ``counterparty`` of a chain; relays without effect (``redundant``);
acknowledgements of ``errors``; receipts of messages without an id, by ``order``; the message that another one
``continues``."""


def has_format(formats: Sequence[str], file: str) -> bool:
    """Return True if a file name has an ending of one of some formats.

    Args:
        formats: Names of formats (``ENDINGS``).
        file: File name; an ending of compression is ignored.

    Returns:
        True if it has one, in upper or lower case.
    """
    return decompressed_name(file).lower().endswith(tuple(ending for each in formats for ending in ENDINGS[each]))


class InferredSection(ScenarioSection):
    """``[windows]``: windows inferred from rows."""

    by: Literal["height", "time"] = Field(..., description="What a window is measured in.")
    gap: Count | None = Field(None, description="More blocks or seconds than this without any row begin a new window.")
    events: list[EventName] = Field(default_factory=list, description="The events that show it; without any, all.")
    together: bool = Field(
        False,
        description="Whether chains that messages pass between have their windows together: both sides were seen.",
    )
    arrivals: bool = Field(
        False,
        description="Whether arrivals show windows of their own, beside those that events show.",
        exclude_if=lambda arrivals: not arrivals,
    )

    @model_validator(mode="after")
    def _of_time(self) -> Self:
        if self.together and self.by != "time":
            raise ValueError('together goes with by = "time": heights of two chains have nothing in common')
        if self.arrivals and self.together:
            raise ValueError("arrivals: has no effect with together")
        if self.arrivals and (not self.events or not set(ARRIVALS).isdisjoint(self.events)):
            raise ValueError(f"arrivals goes with events that have none of {', '.join(ARRIVALS)}")
        return self


class WindowSection(ScenarioSection):
    """``[[observed]]``: a window that the input covers."""

    chain: Text
    events: list[EventName] = Field(default_factory=list)
    revision: Annotated[int, Field(ge=0, le=MAX_REVISION)] | None = Field(None, exclude_if=is_none)
    first_height: Height | None = None
    last_height: Height | None = None
    first_time: Moment | None = None
    last_time: Moment | None = None

    @property
    def heights(self) -> tuple[int | None, int | None, int | None]:
        """Revision, first height and last height."""
        (first_revision, first), (last_revision, last) = map(
            parse_revised_height, (self.first_height, self.last_height)
        )
        if self.revision is not None:
            return self.revision, first, last
        if first_revision != last_revision:
            raise ValueError(f"last_height: {self.last_height}: is of another revision than first_height")
        return first_revision, first, last

    @model_validator(mode="after")
    def _whole(self) -> Self:
        revision, first, last = self.heights
        times = (None if each is None else datetime.fromisoformat(each) for each in (self.first_time, self.last_time))
        names = ("revision", "first_height", "last_height", "first_time", "last_time")
        fault = find_window_fault(dict(zip(names, (revision, first, last, *times), strict=True)))
        if fault is not None:
            raise ValueError(fault)
        if revision is not None and (revision > MAX_REVISION or (last or 0) > MAX_HEIGHT):
            raise ValueError(f"last_height: a revision is {MAX_REVISION} and a height in it {MAX_HEIGHT} at most")
        return self


def parse_revised_height(height: int | str | None) -> tuple[int | None, int | None]:
    """Split ``1-2241421`` to revision and height; None for missing parts."""
    if not isinstance(height, str):
        return None, height
    revision, _, number = height.partition("-")
    return int(revision), int(number)


class PromiseSection(ScenarioSection):
    """``[[promises]]``: guarantees of lanes; omitted names match all."""

    promise: Literal[
        "numbered", "ordered_sends", "ordered_receives", "ordered_acknowledgements", "answered", "final_after",
        "capacity", "conserved", "received", "settled", "causal", "may_drop", "refund_messages", "refunds_recorded",
    ]  # fmt: skip
    protocol: Text | None = None
    source: Text | None = None
    destination: Text | None = None
    lane: Text | None = None
    seconds: Seconds | None = None
    number: Count | None = None
    cause: Text | None = Field(None, exclude_if=is_none)

    @model_validator(mode="after")
    def _options(self) -> Self:
        options = {name: getattr(self, name) for name in ("seconds", "number", "cause")}
        fault = find_promise_fault(self.promise, PROMISE_OPTIONS.get(self.promise), options)
        if fault is not None:
            raise ValueError(fault)
        return self


_CHOOSE = ("where", "present", "absent", "optional", "file")

Rows = TypeVar("Rows", bound=EventSection)


class MappingDocument(ScenarioSection):
    """A whole mapping file."""

    about: str = Field("", description="Description of the traffic, in one sentence.")
    format: Annotated[list[Format], BeforeValidator(as_list), Field(min_length=1)] = Field(
        ..., description="Of the files, or several: which one of them a file's name says, the first if it does not."
    )
    names: Literal["exact", "loose"] = Field(
        "exact", description="How names of columns are compared; loose: without case, spaces, - and _."
    )
    nulls: Annotated[list[str], Field(max_length=LISTED)] = Field(
        default_factory=list, description="Texts that mean a missing value in numbers, times and present."
    )
    hex: Annotated[list[Text], Field(max_length=LISTED)] = Field(
        default_factory=list,
        description="Columns that have as hexadecimal digits what others beside them in content have as text.",
        exclude_if=is_empty,
    )
    delimiter: Annotated[str, Field(pattern=r"^[,;|\t]$")] = Field(",", description="Between fields of CSV.")
    stated_by: Text = Field(..., description="Whose statement the rows are.")
    fields: FieldsSection = Field(default_factory=lambda: FieldsSection.model_validate({}))
    events: Annotated[list[EventSection], Field(max_length=LISTED)] = Field(default_factory=list)
    value: Annotated[list[ValueSection], Field(max_length=LISTED)] = Field(default_factory=list)
    watermarks: Annotated[list[WatermarkSection], Field(max_length=LISTED)] = Field(
        default_factory=list, exclude_if=is_empty
    )
    headers: Annotated[list[HeaderSection], Field(max_length=LISTED)] = Field(default_factory=list, exclude_if=is_empty)
    ignore: Annotated[list[dict[Text, Condition]], Field(max_length=LISTED)] = Field(
        default_factory=list, description="Rows that are no event of a message, by columns and their values."
    )
    links: list[Link] = Field(
        default_factory=list, description="What is found in other records of the input.", exclude_if=is_empty
    )
    windows: InferredSection | None = None
    observed: Annotated[list[WindowSection], Field(max_length=LISTED)] = Field(default_factory=list)
    promises: Annotated[list[PromiseSection], Field(max_length=LISTED)] = Field(default_factory=list)
    deadline: Seconds = Field(
        DEADLINE,
        description="Seconds until a message is expected to have ended; 0: no time.",
        exclude_if=lambda seconds: seconds == DEADLINE,
    )
    clocks: Annotated[dict[Text, Seconds], Field(max_length=LISTED)] = Field(
        default_factory=dict,
        description="By how many seconds the clock of a chain may be wrong; *: of every chain.",
        exclude_if=lambda clocks: not clocks,
    )

    def file_format(self, file: str) -> str:
        """Return the format of a file by its name."""
        name = decompressed_name(file).lower()
        return next((each for each in self.format if name.endswith(ENDINGS[each])), self.format[0])

    def is_of(self, file: str) -> bool:
        """Return True if a file name has an ending of the mapping's formats."""
        return has_format(self.format, file)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if not self.rows:
            raise ValueError("events: missing; a mapping needs at least one of events, value, watermarks, headers")
        for section in self.rows:
            _require_fields(section, self.of(section), self._section_key(section))
        for place, event in enumerate(self.events):
            section_fields = self.of(event)
            if section_fields.index is None and section_fields.message_id is None:
                raise ValueError(f"events[{place}]: neither index nor message_id: a message has a number or a name")
            for name, allowed in (("event", LedgerEvent), ("kind", LedgerKind)):
                found = getattr(section_fields, name)
                known = [each.value for each in allowed]
                if found is None:
                    continue
                for text in (found.text, found.otherwise, *found.values.values()):
                    if text is not None and text not in known:
                        raise ValueError(f"events[{place}].{name}: {suggest_known(name, text, known)}")
        return self

    @property
    def rows(self) -> list[EventSection]:
        """Sections of rows of all tables."""
        return [*self.events, *self.value, *self.watermarks, *self.headers]

    def _section_key(self, section: EventSection) -> str:
        """Return the key of a section in the file."""
        name = "events" if section.table == "ledger" else section.table
        return f"{name}[{getattr(self, name).index(section)}]"

    @property
    def protocols(self) -> list[str] | None:
        """Protocols of the messages, ascending; None if columns name them."""
        texts = {field.text for event in map(self.of, self.events) if (field := event.protocol) is not None}
        return sorted(text for text in texts if text is not None) if None not in texts else None

    def columns(self) -> set[str]:
        """Return the names of all columns of the mapping."""
        found = {column for condition in self.ignore for column in condition}
        for event in (self.of(each) for each in self.rows):
            found.update(event.where)
            found.update(column for several in (*event.present, *event.absent, *event.content) for column in several)
            found.update(
                column
                for _, field in iterate_fields(event)
                for part in iterate_field_parts(field)
                for column in part.column
            )
        return found

    def of(self, event: Rows) -> Rows:
        """Return a section completed with the common fields."""
        common = {name: value for name, value in self.fields if value is not None and value != []}
        if event.own is not None:
            common = {name: value for name, value in common.items() if name in event.own}
        own = {name: value for name, value in event if value is not None and value != []}
        return event.model_copy(update=common | own)


def _require_fields(section: EventSection, have: EventSection, where: str) -> None:
    """Check the fields of a section.

    Raises:
        ValueError: A field is not allowed, or a required one is missing.
    """
    for name, field in section:
        if section.own is not None and name not in (*section.own, *_CHOOSE) and field is not None and field != []:
            raise ValueError(f"{where}.{name}: {section.called} has none")
    for name in section.needed:
        if getattr(have, name) is None:
            in_fields = name in FieldsSection.model_fields
            raise ValueError(f"{where}.{name}: missing{', here and in fields' * in_fields}")


def load_mapping(kind: str, path: str | Path | None = None) -> MappingDocument:
    """Load a built-in mapping, or one from a file.

    Args:
        kind: Name of a built-in mapping.
        path: Path of a file; it overrides ``kind``.

    Returns:
        The mapping.

    Raises:
        InvalidInput: The mapping is unknown or invalid; one line with file, key, value and the allowed values.
    """
    if path is None:
        if kind not in mapping_names():
            raise InvalidInput(f"{suggest_known('kind of traffic', kind, mapping_names())}; your own: --mapping FILE")
        path = Path(str(mappings_folder() / f"{kind}.toml"))
    document: Mapping[str, Any] = read_document(Path(path), "mapping")
    return validate_document(MappingDocument, document, str(path))


__all__ = ["ARRIVALS", "DEADLINE", "ENDINGS", "Link", "MappingDocument", "has_format", "load_mapping"]
