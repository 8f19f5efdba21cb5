"""Sections of a mapping that say what a row is: its fields, and which records have it."""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from causeway.ingest.amounts import Base
from causeway.model.section import Section

FILE = "{file}"
"""What stands in ``otherwise`` for the name of the file, without its endings."""

LISTED = 64
"""Events, windows and promises of a mapping, each."""


def _short(value: object) -> object:
    return {"column": value} if isinstance(value, str | list) else value


def as_list(value: object) -> object:
    """Return a text as a list of it, anything else as it is."""
    return [value] if isinstance(value, str) else value


def is_none(value: object) -> bool:
    """Return whether a value is None."""
    return value is None


def is_empty(value: object) -> bool:
    """Return whether a value is empty."""
    return not value


def _timezone(value: str) -> str:
    if value not in zoneinfo.available_timezones():
        raise ValueError("must be the name of a timezone, such as UTC or Europe/Berlin")
    return value


Text = Annotated[str, Field(min_length=1, max_length=256)]
Columns = Annotated[list[Text], BeforeValidator(as_list)]
Values = dict[Text, str]


_RULES = ("split", "values", "ignore_case", "others", "otherwise", "optional")
"""Options of a field that change what a column says."""


class FieldSection(Section):
    """Where a field comes from: a column, or a text that is the same in all rows."""

    column: Columns = Field(default_factory=list, description="The column, or several: the first that is there.")
    text: Text | None = Field(None, description="A text that stands for every row.")
    join: Annotated[list[Annotated[FieldSection, BeforeValidator(_short)]], Field(max_length=LISTED)] = Field(
        default_factory=list,
        description="Parts that are joined to one text where column has no value; those that are optional may miss.",
        exclude_if=is_empty,
    )
    by: Text = Field("/", description="What stands between the parts of join.", exclude_if=lambda by: by == "/")
    split: Columns | None = Field(None, description="What the value is cut at, or several; with part.")
    part: Annotated[int, Field(ge=0, le=99)] | None = Field(None, description="Which part is taken, from 0.")
    values: Values = Field(default_factory=dict, description="Other texts for some values.")
    ignore_case: bool = Field(False, description="Whether values are in lower case, and looked up so.")
    others: Literal["keep", "refuse", "null"] = Field("keep", description="What becomes of a value not in values.")
    otherwise: Text | None = Field(None, description="What stands where the value is missing; {file}: the file.")
    optional: bool = Field(False, description="Whether the column may be missing; the field is then not seen.")

    @property
    def has_rules(self) -> bool:
        """Whether what a column says is not taken as it is."""
        return self.split is not None or bool(self.values) or self.ignore_case or self.otherwise is not None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if bool(self.column or self.join) == (self.text is not None):
            raise ValueError("give either column or text, or join")
        if self.by != "/" and not self.join:
            raise ValueError("by: has no effect without join")
        if any(part.otherwise == FILE for part in self.join):
            raise ValueError(f"join: a part cannot have otherwise = {FILE}")
        if (self.split is None) != (self.part is None):
            raise ValueError("give split and part together")
        idle = [name for name in _RULES if getattr(self, name) not in (None, {}, False, "keep")]
        if self.text is not None and idle:
            raise ValueError(f"{idle[0]}: has no effect with text")
        if self.others != "keep" and not self.values:
            raise ValueError("others: has no effect without values")
        if self.ignore_case and any(value != value.lower() for value in self.values):
            raise ValueError("with ignore_case, values stand in small letters")
        return self


class _Caseless(FieldSection):
    @model_validator(mode="after")
    def _has_no_case(self) -> Self:
        if self.ignore_case and not self.values:
            raise ValueError("ignore_case: has no effect on numbers and times without values")
        if self.join:
            raise ValueError("join: joins texts, not numbers or times")
        return self


class NumberSection(_Caseless):
    """A whole number."""


class AmountSection(NumberSection):
    """An amount: what digits without ``0x`` mean."""

    base: Base | None = Field(
        None,
        description="How an amount without 0x is read: 10, go (Go's literals: 010 is 8, 1_000 is 1000) or 0x (as "
        "hexadecimal digits); without base, decimal, and one with a leading zero is ambiguous_number.",
        exclude_if=is_none,
    )


class TimeSection(_Caseless):
    """A time: of which unit, by which clock."""

    unit: Literal["iso", "s", "ms", "us", "ns", "any"] = Field(
        "iso", description="ISO 8601, or a number since 1970 in UTC; any: what it is, numbers by their size."
    )
    timezone: Annotated[str, AfterValidator(_timezone)] = Field("UTC", description="Of texts that name none.")


AField = Annotated[FieldSection, BeforeValidator(_short)]
ANumber = Annotated[NumberSection, BeforeValidator(_short)]
AnAmount = Annotated[AmountSection, BeforeValidator(_short)]
ATime = Annotated[TimeSection, BeforeValidator(_short)]
Condition = Annotated[list[str], BeforeValidator(as_list)]


class FieldsSection(Section):
    """The fields of a row of the ledger."""

    protocol: AField | None = None
    source: AField | None = None
    destination: AField | None = None
    lane: AField | None = None
    index: ANumber | None = None
    message_id: AField | None = None
    answers: AField | None = None
    journey: AField | None = None
    continues: AField | None = Field(None, exclude_if=is_none)
    kind: AField | None = None
    event: AField | None = None
    chain: AField | None = None
    revision: ANumber | None = Field(None, exclude_if=is_none)
    height: ANumber | None = None
    position: ANumber | None = None
    time: ATime | None = None
    block: AField | None = Field(None, exclude_if=is_none)
    transaction: AField | None = None
    sender: AField | None = None
    receiver: AField | None = None
    content: list[Columns] = Field(
        default_factory=list, description="Columns that make up what a message carries; of a list in it, one of them."
    )
    asset: AField | None = None
    amount: AnAmount | None = None
    code: ANumber | None = None
    detail: AField | None = None
    timeout_revision: ANumber | None = Field(None, exclude_if=is_none)
    timeout_height: ANumber | None = Field(None, exclude_if=is_none)
    timeout_time: ATime | None = Field(None, exclude_if=is_none)


class EventSection(FieldsSection):
    """``[[events]]``: which rows are which event, and what of its fields differs from ``[fields]``.

    ``table``: the table of the ledger that such rows are of; ``called``: what a row is; ``own``: the fields that a row
    may have (None: all); ``needed``: those that it cannot do without.
    """

    table: ClassVar[str] = "ledger"
    called: ClassVar[str] = "an event"
    own: ClassVar[frozenset[str] | None] = None
    needed: ClassVar[tuple[str, ...]] = ("protocol", "event")

    where: dict[Text, Condition] = Field(default_factory=dict, description="Columns, and the values they must have.")
    present: list[Columns] = Field(
        default_factory=list, description="Columns that must not be empty; of a list in it, one of them."
    )
    absent: list[Columns] = Field(
        default_factory=list, description="Columns that must be empty or missing.", exclude_if=is_empty
    )
    optional: bool = Field(
        False, description="Whether columns of where and present may be missing: there are no such events then."
    )
    file: Text = Field("*", description="Names of files that have such rows, with * and ?, in any case.")


_PLACE = ("chain", "revision", "height", "time")
_LANE = ("protocol", "source", "destination", "lane")


class ValueSection(EventSection):
    """``[[value]]``: which rows are movements of value, and of what; of ``[fields]`` those that movements have."""

    table: ClassVar[str] = "value"
    called: ClassVar[str] = "a movement of value"
    own: ClassVar[frozenset[str] | None] = frozenset(
        {*_LANE, "index", "message_id", *_PLACE, "position", "asset", "amount", "why", "from_", "to"}
    )
    needed: ClassVar[tuple[str, ...]] = ("protocol", "why")

    why: AField | None = None
    from_: AField | None = Field(None, alias="from")
    to: AField | None = None


class WatermarkSection(EventSection):
    """``[[watermarks]]``: which rows say how far a lane has come on a chain; of ``[fields]`` those that they have."""

    table: ClassVar[str] = "watermarks"
    called: ClassVar[str] = "a watermark"
    own: ClassVar[frozenset[str] | None] = frozenset({*_LANE, *_PLACE, "position", "name", "value", "status"})
    needed: ClassVar[tuple[str, ...]] = ("protocol", "name", "value")

    name: AField | None = None
    value: ANumber | None = None
    status: AField | None = None


class HeaderSection(EventSection):
    """``[[headers]]``: which rows are headers of blocks; of ``[fields]`` those that headers have."""

    table: ClassVar[str] = "headers"
    called: ClassVar[str] = "a header"
    own: ClassVar[frozenset[str] | None] = frozenset({*_PLACE, "hash", "parent", "root", "status"})
    needed: ClassVar[tuple[str, ...]] = ("chain", "height")

    hash: AField | None = None
    parent: AField | None = None
    root: AField | None = None
    status: AField | None = None


def fields_of(event: FieldsSection) -> Iterator[tuple[str, FieldSection]]:
    """Yield the fields that come from somewhere."""
    for name, value in event:
        if isinstance(value, FieldSection):
            yield name.removesuffix("_"), value


def parts_of(field: FieldSection) -> Iterator[FieldSection]:
    """Yield a field, and the parts that it joins."""
    yield field
    for part in field.join:
        yield from parts_of(part)


__all__ = [
    "FILE", "LISTED", "ANumber", "AmountSection", "Columns", "Condition", "EventSection", "FieldSection",
    "HeaderSection", "NumberSection", "Text", "TimeSection", "ValueSection", "WatermarkSection", "as_list",
    "fields_of", "is_empty", "is_none", "parts_of",
]  # fmt: skip
