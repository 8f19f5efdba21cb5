"""Encode and decode stream headers: bounds and signals (IC reference 2.6, 2.9)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag

from causeway_proofs.ic.errors import DecodeError, EncodeError
from causeway_proofs.ic.packed_cbor import Fields, Item, read_item, require_same, require_unsigned, write_item
from causeway_proofs.ic.primitives import CURRENT, ENGINE_SIGNALS, CertificationVersion

STREAM_HEADER = ("begin", "end", "signals_end", "reserved_3", "flags", "reject_signals")
REJECT_SIGNALS = (
    "canister_migrating_deltas",
    "canister_not_found_deltas",
    "canister_stopped_deltas",
    "canister_stopping_deltas",
    "queue_full_deltas",
    "out_of_memory_deltas",
    "unknown_deltas",
    "engine_not_allowed_deltas",
)


class RejectReason(IntEnum):
    """Reason for rejecting a message; its field number in the header is one less."""

    CanisterMigrating = 1
    CanisterNotFound = 2
    CanisterStopped = 3
    CanisterStopping = 4
    QueueFull = 5
    OutOfMemory = 6
    Unknown = 7
    EngineNotAllowed = 8


class StreamFlags(IntFlag):
    """Properties of a stream."""

    DEPRECATED_RESPONSES_ONLY = 1


MAX_HEADER_BYTES = 1 << 20
"""Longest header: over 100,000 reject signals; deployed subnets allow 20,000 (X-5)."""

SUPPORTED_FLAGS = int(StreamFlags.DEPRECATED_RESPONSES_ONLY)
NO_FLAGS = StreamFlags(0)


@dataclass(frozen=True, slots=True, order=True)
class RejectSignal:
    """Rejection of the message at ``index`` of the reverse stream for ``reason``."""

    index: int
    reason: RejectReason


@dataclass(frozen=True, slots=True)
class StreamHeader:
    """The header of a stream.

    Attributes:
        begin: index of the first message in the stream.
        end: index after the last message.
        signals_end: index after the last message of the reverse stream with a signal.
        reject_signals: rejected messages below ``signals_end``, ascending; all others were accepted.
        flags: see ``StreamFlags``.
    """

    begin: int
    end: int
    signals_end: int
    reject_signals: tuple[RejectSignal, ...] = ()
    flags: StreamFlags = NO_FLAGS

    def __post_init__(self) -> None:
        object.__setattr__(self, "reject_signals", tuple(sorted(self.reject_signals)))
        object.__setattr__(self, "flags", StreamFlags(self.flags))


def encode_stream_header(header: StreamHeader, version: CertificationVersion = CURRENT) -> bytes:
    """Encode ``header`` canonically at a certification version.

    Args:
        header: the header.
        version: certification version.

    Returns:
        The encoding.

    Raises:
        EncodeError: a number is out of range; a reject signal is duplicated, not below ``signals_end`` or unknown to
            the version; or a flag is unknown.
    """
    item: dict[int, Item] = {
        0: require_unsigned(header.begin, "StreamHeader: begin"),
        1: require_unsigned(header.end, "StreamHeader: end"),
        2: require_unsigned(header.signals_end, "StreamHeader: signals_end"),
    }
    flags = int(header.flags)
    if flags & ~SUPPORTED_FLAGS:
        raise EncodeError(f"StreamHeader: flags are {flags:#b}, supported are {SUPPORTED_FLAGS:#b}")
    if flags:
        item[4] = flags
    if header.reject_signals:
        item[5] = _deltas_by_reason(header, version)
    return write_item(item)


def decode_stream_header(data: bytes, version: CertificationVersion = CURRENT) -> StreamHeader:
    """Decode the canonical encoding of a header at a certification version.

    Args:
        data: the encoding.
        version: certification version.

    Returns:
        The header.

    Raises:
        OverLimit: ``data`` is too long.
        DecodeError: ``data`` is not such an encoding; the text is the deployed decoder's where it has one.
    """
    fields = Fields(read_item(data, "StreamHeader", MAX_HEADER_BYTES), "StreamHeader", STREAM_HEADER)
    begin, end, signals_end = (fields.unsigned(name) for name in ("begin", "end", "signals_end"))
    if reserved := fields.optional_unsigned("reserved_3"):
        raise DecodeError(f"StreamHeader: field index 3 is populated: {reserved}")
    flags = fields.optional_unsigned("flags") or 0
    if flags & ~SUPPORTED_FLAGS:
        raise DecodeError(
            f"StreamHeader: unsupported flags: got `flags` {flags:#b}, `supported_flags` {SUPPORTED_FLAGS:#b}"
        )
    signals = _signals(fields.item("reject_signals"), signals_end, version) if "reject_signals" in fields else ()
    header = StreamHeader(begin, end, signals_end, signals, StreamFlags(flags))
    require_same(data, encode_stream_header(header, version), "StreamHeader")
    return header


def reject_reasons(version: CertificationVersion) -> tuple[RejectReason, ...]:
    """Return the reasons known to a version, in field order."""
    return tuple(RejectReason)[: None if version >= ENGINE_SIGNALS else -1]


def _deltas_by_reason(header: StreamHeader, version: CertificationVersion) -> dict[int, list[int]]:
    """Convert reject signals to the map from reasons to distances between signals."""
    known = reject_reasons(version)
    by_reason: dict[RejectReason, list[int]] = {reason: [] for reason in known}
    before = -1
    for signal in header.reject_signals:
        index = require_unsigned(signal.index, "StreamHeader: index of a reject signal")
        if signal.reason not in by_reason:
            raise EncodeError(
                f"StreamHeader: reason {signal.reason!r} of the reject signal for {index} is not one of certification "
                f"version {version:d}"
            )
        if index == before:
            raise EncodeError(f"StreamHeader: two reject signals for index {index}")
        if index >= header.signals_end:
            raise EncodeError(f"StreamHeader: reject signal for {index}, signals end at {header.signals_end}")
        by_reason[RejectReason(signal.reason)].append(index)
        before = index
    return {
        reason - 1: [
            following - index for index, following in zip(indices, [*indices[1:], header.signals_end], strict=True)
        ]
        for reason, indices in by_reason.items()
        if indices
    }


def _signals(item: Item, signals_end: int, version: CertificationVersion) -> tuple[RejectSignal, ...]:
    """Convert the map from reasons to distances to reject signals."""
    reasons = reject_reasons(version)
    fields = Fields(item, "RejectSignals", REJECT_SIGNALS[: len(reasons)])
    found: dict[int, RejectReason] = {}
    for reason in reasons:
        deltas = fields.numbers(REJECT_SIGNALS[reason - 1])
        index = signals_end
        for delta in reversed(deltas):
            if delta == 0:
                raise DecodeError(
                    f"StreamHeader: {reason.name} found bad delta: `0` is not allowed in `reject_signal_deltas` "
                    f"{_format_deltas(deltas)}"
                )
            if index < delta:
                raise DecodeError(
                    f"StreamHeader: {reason.name} reject signals are invalid, got `signals_end` {signals_end}, "
                    f"`reject_signal_deltas` {_format_deltas(deltas)}"
                )
            index -= delta
            if index in found:
                raise DecodeError("StreamHeader: reject signals are invalid, got duplicates")
            found[index] = reason
    return tuple(RejectSignal(index, found[index]) for index in sorted(found))


MAX_LISTED_DELTAS = 32


def _format_deltas(deltas: list[int]) -> str:
    """Format a list for a message, as the deployed decoder does; truncate a long one."""
    return (
        str(deltas)
        if len(deltas) <= MAX_LISTED_DELTAS
        else f"{str(deltas[:MAX_LISTED_DELTAS])[:-1]}, ...] ({len(deltas)} deltas)"
    )
