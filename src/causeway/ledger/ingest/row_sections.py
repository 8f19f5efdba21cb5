"""Sections of a mapping that define rows: fields, matching records, and ambiguous amounts.

The text ``010`` is 10 to ibc-rs, cosmjs and Python, but 8 to ibc-go: it reads amounts as Go literals
(cosmossdk.io/math, NewIntFromString). A mapping's ``base`` selects one reading.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Collection, Iterator
from typing import Annotated, ClassVar, Literal, Self

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from causeway.config.section import ScenarioSection

__all__ = [
    "FILE",
    "LISTED",
    "READINGS",
    "ANumber",
    "AmountSection",
    "Base",
    "Columns",
    "Condition",
    "EventSection",
    "FieldSection",
    "HeaderSection",
    "NumberSection",
    "Text",
    "TimeSection",
    "ValueSection",
    "WatermarkSection",
    "as_list",
    "has_leading_zero",
    "is_empty",
    "is_none",
    "iterate_field_parts",
    "iterate_fields",
    "parse_go_literal",
    "rewrite_base",
]

Base = Literal[10, "go", "0x"]

READINGS = {
    "ambiguous_number": "010 is 10 to ibc-rs and cosmjs, 8 to ibc-go; base in a mapping (--mapping) says which",
    "ambiguous_height": "1-0 is height 0 of revision 1 to ibc-go, no time-out to @confio/relayer; values in the "
    "mapping say which",
}
"""Hints by quarantine reason, for texts that deployed software reads in two ways."""

_LEADING_ZERO = r"^[ \t\n\v\f\r]*[+-]?0[0-9]"
_BARE_HEX = r"^([ \t\n\v\f\r]*[+-]?)(?:0[xX])?([0-9a-fA-F]+)([ \t\n\v\f\r]*)$"
_PLAIN = r"^(?:0|[1-9][0-9]*)?$"
_GO_LITERAL = re.compile(
    "([+-]?)(?:"
    "0[xX](?P<b16>_?[0-9a-fA-F](?:_?[0-9a-fA-F])*)|0[oO](?P<o8>_?[0-7](?:_?[0-7])*)|0[bB](?P<b2>_?[01](?:_?[01])*)|"
    "0(?P<b8>(?:_?[0-7])+)|(?P<b10>0|[1-9](?:_?[0-9])*))"
)
_BASES = {"b16": 16, "o8": 8, "b2": 2, "b8": 8, "b10": 10}
_TOO_LARGE = 1 << 256
_MAX_DIGITS = 256
"""Binary digits of 2**256 - 1; more significant digits in any base are too many."""


def has_leading_zero(texts: pa.Array) -> pa.Array:
    """Return a mask of texts that begin with a zero before another digit.

    Args:
        texts: Texts (string).

    Returns:
        Boolean column, null for null.
    """
    return pc.match_substring_regex(texts, _LEADING_ZERO)


def rewrite_base(texts: pa.Array, base: Base | None, nulls: Collection[str]) -> pa.Array:
    """Rewrite numbers so that readers of decimal digits and ``0x`` get the meaning of ``base``.

    Args:
        texts: Strings.
        base: 10 or None: unchanged; ``0x``: digits without ``0x`` are hexadecimal; ``go``: Go literals.
        nulls: Texts that mean "no value".

    Returns:
        Strings; texts invalid in ``base`` become invalid for every reader.
    """
    if base == "0x":
        # Hexadecimal digits have no fraction, not even a zero one.
        return pc.replace_substring(pc.replace_substring_regex(texts, _BARE_HEX, r"\10x\2\3"), ".", "?")
    if base == "go":
        odd = pc.invert(pc.match_substring_regex(texts, _PLAIN))
        if pc.any(odd).as_py():
            coded = texts.dictionary_encode()
            values = [
                text if text is None or text in nulls or not text.strip() else parse_go_literal(text)
                for text in coded.dictionary.to_pylist()
            ]
            return pa.array(values, pa.string()).take(coded.indices)
    return texts


def parse_go_literal(text: str) -> str:
    """Convert an integer literal of Go to decimal digits.

    Args:
        text: The literal; surrounding spaces are ignored.

    Returns:
        Digits, with ``-`` for a negative number; 2**256 for any larger number; ``?`` for an invalid literal.

    Reference:
        math/big, Int.SetString with base 0.
    """
    found = _GO_LITERAL.fullmatch(text.strip(" \t\n\v\f\r"))
    if found is None:
        return "?"
    kind = found.lastgroup or "b10"
    digits = found[kind].replace("_", "").lstrip("0")
    value = _TOO_LARGE if len(digits) > _MAX_DIGITS else min(int(digits or "0", _BASES[kind]), _TOO_LARGE)
    return f"{'-' * (found[1] == '-')}{value}"


FILE = "{file}"
"""Placeholder in ``otherwise`` for the file name without endings."""

LISTED = 64
"""Maximum number of events, windows or guarantees of a mapping, each."""


def _short(value: object) -> object:
    return {"column": value} if isinstance(value, str | list) else value


def as_list(value: object) -> object:
    """Wrap a text in a list; return other values unchanged.

    Args:
        value: Value of a mapping.

    Returns:
        A list for a text.
    """
    return [value] if isinstance(value, str) else value


def is_none(value: object) -> bool:
    """Return True for None.

    Args:
        value: Value of a field.

    Returns:
        True for None only.
    """
    return value is None


def is_empty(value: object) -> bool:
    """Return True for an empty value.

    Args:
        value: Value of a field.

    Returns:
        True for None, 0, and empty texts and collections.
    """
    return not value


def _timezone(value: str) -> str:
    if value not in zoneinfo.available_timezones():
        raise ValueError("must be the name of a timezone, such as UTC or Europe/Berlin")
    return value


Text = Annotated[str, Field(min_length=1, max_length=256)]
Columns = Annotated[list[Text], BeforeValidator(as_list)]
Values = dict[Text, str]


_RULES = ("split", "values", "ignore_case", "others", "otherwise", "optional")
"""Options of a field that map the values of its column."""


class FieldSection(ScenarioSection):
    """Source of a field: a column, or a constant text."""

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
        """True if the values of the column are mapped."""
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
    """An integer."""


class AmountSection(NumberSection):
    """An amount, with the base of digits without ``0x``."""

    base: Base | None = Field(
        None,
        description="How an amount without 0x is read: 10, go (Go's literals: 010 is 8, 1_000 is 1000) or 0x (as "
        "hexadecimal digits); without base, decimal, and one with a leading zero is ambiguous_number.",
        exclude_if=is_none,
    )


class TimeSection(_Caseless):
    """A time, with its unit and time zone."""

    unit: Literal["iso", "s", "ms", "us", "ns", "any"] = Field(
        "iso", description="ISO 8601, or a number since 1970 in UTC; any: what it is, numbers by their size."
    )
    timezone: Annotated[str, AfterValidator(_timezone)] = Field("UTC", description="Of texts that name none.")


AField = Annotated[FieldSection, BeforeValidator(_short)]
ANumber = Annotated[NumberSection, BeforeValidator(_short)]
AnAmount = Annotated[AmountSection, BeforeValidator(_short)]
ATime = Annotated[TimeSection, BeforeValidator(_short)]
Condition = Annotated[list[str], BeforeValidator(as_list)]


class FieldsSection(ScenarioSection):
    """The fields of a ledger row."""

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
    """``[[events]]``: the records of an event, and its fields that differ from ``[fields]``.

    Attributes:
        table: Table of the rows.
        called: Noun of a row, for messages.
        own: Allowed fields; None: all.
        needed: Required fields.
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
    """``[[value]]``: records of movements of value, with the applicable ``[fields]``."""

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
    """``[[watermarks]]``: records of a lane's progress, with the applicable ``[fields]``."""

    table: ClassVar[str] = "watermarks"
    called: ClassVar[str] = "a watermark"
    own: ClassVar[frozenset[str] | None] = frozenset({*_LANE, *_PLACE, "position", "name", "value", "status"})
    needed: ClassVar[tuple[str, ...]] = ("protocol", "name", "value")

    name: AField | None = None
    value: ANumber | None = None
    status: AField | None = None


class HeaderSection(EventSection):
    """``[[headers]]``: records of block headers, with the applicable ``[fields]``."""

    table: ClassVar[str] = "headers"
    called: ClassVar[str] = "a header"
    own: ClassVar[frozenset[str] | None] = frozenset({*_PLACE, "hash", "parent", "root", "status"})
    needed: ClassVar[tuple[str, ...]] = ("chain", "height")

    hash: AField | None = None
    parent: AField | None = None
    root: AField | None = None
    status: AField | None = None


def iterate_fields(event: FieldsSection) -> Iterator[tuple[str, FieldSection]]:
    """Yield the fields that are set.

    Args:
        event: Section of a mapping.

    Yields:
        Name of the field, without a final underscore, and its section.
    """
    for name, value in event:
        if isinstance(value, FieldSection):
            yield name.removesuffix("_"), value


def iterate_field_parts(field: FieldSection) -> Iterator[FieldSection]:
    """Yield a field and its joined parts.

    Args:
        field: Section of a field.

    Yields:
        The field, and the parts of ``join`` in order, each with its own parts.
    """
    yield field
    for part in field.join:
        yield from iterate_field_parts(part)
