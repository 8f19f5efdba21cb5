"""Which messages or rows commands over a lake are asked for: the same options of all, declared and checked once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from causeway.cli import completion
from causeway.cli.options import option
from causeway.model.errors import InvalidInput
from causeway.model.text import escaped, in_utc, unknown

if TYPE_CHECKING:
    from causeway.figures.where import Where

FILTERS = "Which messages"

MOST_NUMBER = (1 << 64) - 1


def _events() -> list[str]:
    from causeway.ledger.schema import Event

    return [*map(str, Event)]


def _kinds() -> list[str]:
    from causeway.ledger.schema import Kind

    return [*map(str, Kind)]


def _outcomes() -> list[str]:
    from causeway.ledger.outcomes import Outcome

    return [*map(str, Outcome)]


@dataclass(frozen=True)
class Filter:
    """An option that chooses messages or rows. ``column``: the one that it is about; ``known``: the values that there
    are, None: any. ``bound``: it is the ``first`` or the ``last`` of a range. ``of_rows``: its help where rows are
    meant, of which a message has several."""

    flag: str
    column: str
    help: str
    metavar: str = "NAME"
    known: Callable[[], list[str]] | None = None
    bound: str | None = None
    of_rows: str | None = None

    @property
    def name(self) -> str:
        """Return the name of its parameter."""
        return f"filter_{self.flag.strip('-').replace('-', '_')}"

    def parameter(self, *, rows: bool) -> inspect.Parameter:
        """Return it as Typer takes it."""
        said = (self.of_rows if rows else None) or self.help
        kind: Any = list[str] if self.bound is None else str if self.metavar == "TIME" else int
        chooses = option(
            said if self.bound else f"{said} May be repeated.",
            self.flag,
            metavar=self.metavar,
            panel=FILTERS,
            autocompletion=None if self.known is None else completion.among(self.known),
        )
        return inspect.Parameter(
            self.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, chooses]
        )


_ALL = (
    Filter("--chain", "chain", "A chain that they come from or go to.", of_rows="The chain where it happened."),
    Filter("--source", "source", "The chain that they come from."),
    Filter("--destination", "destination", "The chain that they go to."),
    Filter("--lane", "lane", "The channel, stream or queue."),
    Filter("--event", "event", "What happened, such as sent or received.", known=_events),
    Filter("--kind", "kind", "What the message is: request, response, ...", known=_kinds),
    Filter("--outcome", "outcome", "What became of them, such as answered or pending.", known=_outcomes),
    Filter("--message", "message_id", "The message_id.", "ID"),
    Filter("--sender", "sender", "Who sent them."),
    Filter("--receiver", "receiver", "For whom they are."),
    Filter("--from", "index", "First index in the lane.", "N", bound="first"),
    Filter("--to", "index", "Last index in the lane.", "N", bound="last"),
    Filter("--from-height", "height", "Sent in this block or later.", "N", bound="first", of_rows="First block."),
    Filter("--to-height", "height", "Sent in this block or earlier.", "N", bound="last", of_rows="Last block."),
    Filter("--from-tick", "tick", "Sent in this tick or later.", "N", bound="first", of_rows="First tick of a run."),
    Filter("--to-tick", "tick", "Sent in this tick or earlier.", "N", bound="last", of_rows="Last tick."),
    Filter(
        "--from-time",
        "time",
        "Sent at this time or later, as 2024-10-09 or 2024-10-09T14:54:48; UTC.",
        "TIME",
        bound="first",
        of_rows="From this time on, as 2024-10-09 or 2024-10-09T14:54:48; UTC.",
    ),
    Filter("--to-time", "time", "Sent at this time or earlier.", "TIME", bound="last", of_rows="Up to this time."),
)


@dataclass(frozen=True)
class Filters:
    """What a user asked for: options and their values, those that were given."""

    given: Mapping[str, Any]

    def __bool__(self) -> bool:
        return bool(self.given)

    def values(self) -> dict[str, tuple[str, ...]]:
        """Return the columns of which values are asked for, with these. Raises ``InvalidInput``."""
        found: dict[str, tuple[str, ...]] = {}
        for each in _ALL:
            if each.flag not in self.given or each.bound is not None:
                continue
            known = None if each.known is None else each.known()
            for value in self.given[each.flag]:
                if known is not None and value not in known:
                    raise InvalidInput(f"{each.flag}: {unknown(each.column, value, known)}")
            found[each.column] = tuple(self.given[each.flag])
        return found

    def ranges(self) -> dict[str, tuple[Any, Any]]:
        """Return the columns of which a range is asked for, with its first and last value (None: without a bound).
        Raises ``InvalidInput``."""
        found: dict[str, tuple[Any, Any]] = {}
        for each in _ALL:
            if each.flag not in self.given or each.bound is None:
                continue
            value = self.given[each.flag]
            if each.metavar == "TIME":
                value = time_of(each.flag, value)
            elif not 0 <= value <= MOST_NUMBER:
                raise InvalidInput(f"{each.flag} {value}: must be from 0 to {MOST_NUMBER}")
            first, last = found.get(each.column, (None, None))
            first, last = (value, last) if each.bound == "first" else (first, value)
            if first is not None and last is not None and first > last:
                begin = each.flag.replace("--to", "--from")
                said = f"{begin} {escaped(str(self.given[begin]))}: is after {each.flag} {self.given[each.flag]}"
                raise InvalidInput(f"{escaped(said)}: nothing is between them")
            found[each.column] = first, last
        return found

    def flag(self, column: str) -> str:
        """Return the option given that is about a column."""
        return next(each.flag for each in _ALL if each.column == column and each.flag in self.given)

    def where(self) -> Where:
        """Return the messages asked for: heights, ticks and times are those of their sending. Raises
        ``InvalidInput``."""
        from causeway.figures.where import Where

        ranges = self.ranges().items()
        sent = {name if name == "index" else f"sent_{name}": bounds for name, bounds in ranges}
        return Where.of(**self.values()).and_(Where.between(**sent))


def filtered(*without: str, rows: bool = False) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give a command the options of filters, but some, in place of its parameter ``filters``, which has what was given.

    ``without``: options that the command does not have; ``rows``: it is about rows, of which a message has several.
    """

    def change(command: Callable[..., int]) -> Callable[..., int]:
        own = [each for each in _ALL if each.flag not in without]
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            if parameter.name == "filters":
                parameters += [each.parameter(rows=rows) for each in own]
            else:
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

        def with_filters(**given: Any) -> int:
            values = {each.flag: given.pop(each.name) for each in own}
            asked = {flag: value for flag, value in values.items() if value not in (None, [], ())}
            return command(**given, filters=Filters(asked))

        with_filters.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
        with_filters.__doc__ = command.__doc__
        return with_filters

    return change


def time_of(option: str, text: str) -> datetime:
    """Return a time as a user writes it; without a zone it is UTC. Raises ``InvalidInput``."""
    try:
        return in_utc(text)
    except ValueError:
        raise InvalidInput(f"{option} {escaped(text)}: is no time; write 2024-10-09 or 2024-10-09T14:54:48") from None
    except OverflowError:
        raise InvalidInput(f"{option} {text}: must be within the years 1 to 9999") from None


__all__ = ["FILTERS", "Filter", "Filters", "filtered", "time_of"]
