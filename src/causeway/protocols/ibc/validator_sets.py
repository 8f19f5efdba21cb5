"""The validators of zones: which are in force at which height, and their keys (IBC reference 2.5, X-4).

Without ``rotation`` a zone has one set for ever. With it, every so many blocks some members give their seats to new
ones: the seats have an order, drawn from the network's seed, and it goes round in that order. So any height's set
follows from the height alone.

These are for simulations: whoever knows the seed knows the keys. Of a zone that is served, or that another lake runs,
the options list the public keys (``validator_keys``), and the secret ones are read from files.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256

from causeway.model.errors import InvalidInput
from causeway.proofs.tendermint.building import validators_of
from causeway.proofs.tendermint.keys import PublicKey, SigningKey
from causeway.proofs.tendermint.series import SignedSeries
from causeway.proofs.tendermint.validators import Validator, ValidatorSet
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.options import IbcOptions
from causeway.protocols.secrets import Secrets

POWER = 10
"""Voting power of each validator of a zone."""

Members = tuple[ValidatorSet, dict[bytes, SigningKey]]
"""A set, and the keys of its validators by address."""


@lru_cache(maxsize=4096)
def _members(seed: int, chain_id: str, seats: tuple[int, ...]) -> Members:
    """Return the set with these members: of each seat, how often it was given to a new one."""
    names = [f"{seat}" if not given else f"{seat}/{given}" for seat, given in enumerate(seats)]
    return validators_of({SigningKey.from_name(f"causeway/{seed}/{chain_id}/{name}"): POWER for name in names})


@lru_cache(maxsize=4096)
def _turns(seed: int, chain_id: str, count: int) -> tuple[int, ...]:
    """Return when each seat is given to a new member: its rank in the order that is drawn for the zone."""
    draws = [sha256(f"causeway/{seed}/{chain_id}/seats/{seat}".encode()).digest() for seat in range(count)]
    order = sorted(range(count), key=draws.__getitem__)
    return tuple(sorted(range(count), key=order.__getitem__))


def seats_at(seed: int, chain_id: str, height: int, options: IbcOptions) -> tuple[int, ...]:
    """Return for each seat of a zone's set how often it was given to a new member by the block of a height."""
    count, rotation = options.validators, options.rotation
    if not rotation.every:
        return (0,) * count
    given = height // rotation.every * rotation.replace
    return tuple((given - turn + count - 1) // count for turn in _turns(seed, chain_id, count))


def validators_at(seed: int, chain_id: str, height: int, options: IbcOptions) -> Members:
    """Return the validators that sign a zone's block of a height, and their keys."""
    return _members(seed, chain_id, seats_at(seed, chain_id, height, options))


@lru_cache(maxsize=4096)
def listed_validators(listed: tuple[str, ...], secrets: Secrets) -> Members:
    """Return the set of the public keys that the options list, with those secret keys that are here."""
    publics = [bytes.fromhex(public) for public in listed]
    own = ValidatorSet.of(Validator(PublicKey(public), POWER) for public in publics)
    keys = [SigningKey(secrets.seeds[public]) for public in publics if public in secrets.seeds]
    return own, {key.public_key.address: key for key in keys}


def require_keys(chain_id: str, options: IbcOptions, secrets: Secrets) -> None:
    """Refuse to run a zone whose headers would not be believed: more than two thirds of its validators sign.

    Raises:
        InvalidInput: too few of the keys that the options list for it are here.
    """
    listed = options.validator_keys.get(chain_id)
    if listed is not None:
        here = sum(bytes.fromhex(public) in secrets.seeds for public in listed)
        if 3 * here <= 2 * len(listed):
            text = f"{chain_id}: secret keys of {here} of its {len(listed)} validators are here, more than two thirds"
            text = f"{text} must be: causeway serve --validator-key {chain_id}=FILE"
            raise InvalidInput(f"options.validator_keys: {text}")


def validators_of_zone(chain: int, height: int, context: Context) -> Members:
    """Return the validators that sign the block of a height of the zone at a position."""
    listed = context.options.validator_keys.get(context.zones.names[chain])
    if listed is not None:
        return listed_validators(listed, context.secrets)
    return validators_at(context.seed, context.zones.names[chain], height, context.options)


def series_of_zone(chain: int, height: int, context: Context) -> SignedSeries:
    """Return the series of signed headers that the one of a height belongs to, for the zone at a position."""
    name, options = context.zones.names[chain], context.options
    if name in options.validator_keys:
        return _listed_series(name, options.validator_keys[name], context.secrets)
    seats = (seats_at(context.seed, name, at, options) for at in (max(height - 1, 0), height, height + 1))
    return _series(context.seed, name, *seats)


@lru_cache(maxsize=4096)
def _series(
    seed: int, chain_id: str, before: tuple[int, ...], now: tuple[int, ...], following: tuple[int, ...]
) -> SignedSeries:
    own, keys = _members(seed, chain_id, now)
    trusted, after = (_members(seed, chain_id, seats)[0] for seats in (before, following))
    return SignedSeries(chain_id, own, after, trusted, keys)


@lru_cache(maxsize=4096)
def _listed_series(chain_id: str, listed: tuple[str, ...], secrets: Secrets) -> SignedSeries:
    own, keys = listed_validators(listed, secrets)
    return SignedSeries(chain_id, own, own, own, keys)


def needs_header_between(chain: int, trusted: int, height: int, context: Context) -> bool:
    """Return whether too few of those who signed the block ``trusted`` signed that of ``height`` (X-4): unknown.

    All members sign, each has the same power. The next height is never unknown.
    """
    before, after = (
        seats_at(context.seed, context.zones.names[chain], at, context.options) for at in (trusted, height)
    )
    if height <= trusted + 1 or before == after:
        return False
    stayed = sum(one == other for one, other in zip(before, after, strict=True))
    return 3 * stayed < 2 * len(before)


def headers_between(chain: int, trusted: int, height: int, context: Context) -> list[int]:
    """Return the heights between ``trusted`` and ``height`` whose headers may be wanted on the way, ascending.

    Those that halving the way asks for, as often as a header is unknown.
    """
    if not needs_header_between(chain, trusted, height, context):
        return []
    middle = (trusted + height) // 2
    parts = headers_between(chain, trusted, middle, context), headers_between(chain, middle, height, context)
    return [*parts[0], middle, *parts[1]]
