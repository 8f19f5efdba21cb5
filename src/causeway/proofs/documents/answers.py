"""What a list of storage entries answers, and what it leaves open: a proof is true of the keys that it lists, and says
nothing of others.

Absence is also true of a key that nobody ever uses: of a misspelled item, or of the wrong parachain.
"""

from __future__ import annotations

from collections.abc import Mapping

from causeway.proofs.substrate.compact import decode_compact
from causeway.proofs.substrate.errors import FailedToDecode
from causeway.proofs.substrate.known_items import (
    CHANNELS,
    CONTENTS,
    DIGESTS,
    HRMP,
    HRMP_WATERMARKS,
    INGRESS_INDEX,
    PREFIX_BYTES,
    known_item,
)
from causeway.proofs.substrate.parachains import PALLET, U32_BYTES, UNROUTED, WATERMARKS

SHOWN = 4
"""Names or numbers that a note lists."""

Entries = Mapping[bytes, bytes | None]
"""What is claimed to be stored under each key; None: nothing."""

_Found = dict[tuple[str, str], dict[tuple[int, ...], bytes | None]]


def notes_on(entries: Entries, names: Mapping[bytes, str], block: int | None) -> tuple[str, ...]:
    """Return what a reader has to know of what true entries do not say, a line each.

    ``names``: how the entries name their keys, those that have names. ``block``: the relay block after which the state
    is, where what is trusted says so.
    """
    found: _Found = {}
    for key, value in entries.items():
        known = known_item(key)
        if known is not None:
            found.setdefault(known[:2], {})[known[2]] = value
    return (*_unknown(entries, names), *_queues(found, block), *_channels(found))


def _unknown(entries: Entries, names: Mapping[bytes, str]) -> list[str]:
    """Return a note on absent keys of items of which nothing shows that there are such."""
    there = {key[:PREFIX_BYTES] for key, value in entries.items() if value is not None}
    absent = [key for key, value in entries.items() if value is None and key[:PREFIX_BYTES] not in there]
    items = {names.get(key, f"keys under 0x{key[:PREFIX_BYTES].hex()}"): None for key in absent if not known_item(key)}
    if not items:
        return []
    return [f"nothing here shows that there is such an item as {_listed([*items])}: of a wrong name it is true as well"]


def _queues(found: _Found, block: int | None) -> list[str]:
    """Return for every parachain of which posted queues are listed whether they are all that wait for it."""
    posted = found.get((PALLET, UNROUTED), {})
    marks = found.get((PALLET, WATERMARKS), {})
    notes = []
    for para in sorted({to for _, to in posted}):
        mark = marks.get((para,))
        numbers = {number for number, to in posted if to == para}
        if mark is None or len(mark) < U32_BYTES:
            notes.append(
                f"not all that waits for parachain {para}: without its watermark nothing says where that begins"
            )
            continue
        first = int.from_bytes(mark[:U32_BYTES], "little") + 1
        last = max(numbers) if block is None else block
        missing = _gaps(numbers, first, last)
        if missing:
            notes.append(f"not all that waits for parachain {para}: nothing is said of relay block {missing}")
        elif block is None:
            notes.append(
                f"all that waits for parachain {para} up to relay block {last}: whether that is the state's own block "
                "a header (icmp_head) says, a root does not"
            )
        else:
            notes.append(f"all that waits for parachain {para} after relay block {block}, from block {first} on")
    return notes


def _channels(found: _Found) -> list[str]:
    """Return for every parachain whose list of channels is there whether all of them are, with what is in them."""
    notes = []
    for (para,), value in sorted(found.get((HRMP, INGRESS_INDEX), {}).items()):
        try:
            senders = _numbers(value)
        except FailedToDecode:
            notes.append(f"{INGRESS_INDEX}({para}) is no list of parachains")
            continue
        lacking = [
            f"{item}({', '.join(map(str, key))})"
            for item, keys in (
                (HRMP_WATERMARKS, [(para,)]),
                (DIGESTS, [(para,)]),
                (CHANNELS, [(sender, para) for sender in senders]),
                (CONTENTS, [(sender, para) for sender in senders]),
            )
            for key in keys
            if key not in found.get((HRMP, item), {})
        ]
        what = f"not all that waits for parachain {para}: nothing is said of {_listed(lacking)}"
        notes.append(what if lacking else f"all {len(senders)} channels to parachain {para}, with all that is in them")
    return notes


def _numbers(value: bytes | None) -> list[int]:
    """Return the numbers of 32 bits that a list in SCALE has; of nothing, none. Raises ``FailedToDecode``."""
    if value is None:
        return []
    count, start = decode_compact(value, 0, "a list of parachains")
    if len(value) - start != count * U32_BYTES:
        raise FailedToDecode("a list of parachains has another length than it says")
    return [int.from_bytes(value[at : at + U32_BYTES], "little") for at in range(start, len(value), U32_BYTES)]


def _gaps(numbers: set[int], first: int, last: int) -> str:
    """Return the numbers from ``first`` to ``last`` that are not among some, the first of them; empty: none."""
    there = sorted(number for number in numbers if first <= number <= last)
    gaps = []
    for number in (*there, last + 1):
        if number > first:
            gaps.append(str(first) if number == first + 1 else f"{first} to {number - 1}")
        first = number + 1
    return _listed(gaps)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
