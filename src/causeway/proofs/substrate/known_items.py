"""Items of a relay chain's storage that keys name, so that a reader sees what they are of (ICMP reference 3.1, X-6).

All are maps under ``Twox64Concat`` of numbers of 32 bits, which therefore stand in their keys.
"""

from __future__ import annotations

from functools import cache

from causeway.proofs.substrate.hashing import twox_64_concat
from causeway.proofs.substrate.parachains import BLOCKED, HEADS, PALLET, UNROUTED, WATERMARKS
from causeway.proofs.substrate.storage_keys import storage_prefix

HRMP, PARAS = "Hrmp", "Paras"

HRMP_WATERMARKS, INGRESS_INDEX, DIGESTS = "HrmpWatermarks", "HrmpIngressChannelsIndex", "HrmpChannelDigests"
CHANNELS, CONTENTS = "HrmpChannels", "HrmpChannelContents"

_NUMBERS = {
    (PALLET, HEADS): 1,
    (PALLET, WATERMARKS): 1,
    (PALLET, UNROUTED): 2,
    (PALLET, BLOCKED): 2,
    (PARAS, HEADS): 1,
    (PARAS, "ParaLifecycles"): 1,
    (HRMP, HRMP_WATERMARKS): 1,
    (HRMP, INGRESS_INDEX): 1,
    (HRMP, "HrmpEgressChannelsIndex"): 1,
    (HRMP, DIGESTS): 1,
    (HRMP, CHANNELS): 2,
    (HRMP, CONTENTS): 2,
    (HRMP, "HrmpOpenChannelRequests"): 2,
    (HRMP, "HrmpCloseChannelRequests"): 2,
    (HRMP, "HrmpOpenChannelRequestCount"): 1,
    (HRMP, "HrmpAcceptedChannelRequestCount"): 1,
}
"""By pallet and item, of how many numbers a key is."""

PREFIX_BYTES = 32
_U32_BYTES, _HASH_BYTES = 4, 8


@cache
def _items() -> dict[bytes, tuple[str, str]]:
    return {storage_prefix(pallet, item): (pallet, item) for pallet, item in _NUMBERS}


def known_item(key: bytes) -> tuple[str, str, tuple[int, ...]] | None:
    """Return the pallet, the item and the numbers that a storage key is of; None: it is of no item that is known."""
    found = _items().get(key[:PREFIX_BYTES])
    if found is None:
        return None
    hashed = key[PREFIX_BYTES:]
    plain = hashed[_HASH_BYTES:]
    if len(plain) != _U32_BYTES * _NUMBERS[found] or twox_64_concat(plain) != hashed:
        return None
    numbers = [plain[at : at + _U32_BYTES] for at in range(0, len(plain), _U32_BYTES)]
    return (*found, tuple(int.from_bytes(number, "little") for number in numbers))
