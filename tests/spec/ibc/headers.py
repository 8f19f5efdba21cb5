"""Headers, trust sets, proofs (2.5), and valid(T, U) of X-4."""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from hashlib import sha256

Validators = Mapping[str, int]
"""Name -> power."""


@dataclass(frozen=True)
class Commit:
    """What comes with a header under X-4: the validator set that it is of, and who of any set signed it."""

    validators: tuple[tuple[str, int], ...]
    signers: frozenset[str]


@dataclass(frozen=True)
class Header:
    """H_h. `commit` is C_h and the signatures; two headers are one if the rest is equal."""

    chain_id: str
    height: int
    time: int
    root: bytes
    validators_hash: bytes = b""
    next_validators_hash: bytes = b""
    commit: Commit | None = field(default=None, compare=False)


Trust = set[tuple[int, Header]]
"""T, by height."""

Valid = Callable[[Trust, Header], bool | None]
"""valid(T, U): True, False, or None for unknown."""


@dataclass(frozen=True)
class Proof:
    """M_{k,v,h} without a tree: it says that `chain` had `value` under `key` in the state that header `height` shows.
    `value` None says that there was nothing (X-6 only). It holds iff that is true."""

    key: bytes
    value: bytes | None
    height: int
    chain: str


Stores = dict[tuple[str, bytes], dict[bytes, bytes]]
"""(chain, root) -> the store that was committed with that root."""


def proves(header: Header, proof: Proof, stores: Stores) -> bool:
    """valid(H_h, M)."""
    if (proof.chain, proof.height) != (header.chain_id, header.height):
        return False
    store = stores.get((header.chain_id, header.root))
    return store is not None and store.get(proof.key) == proof.value


# ----


def validators_hash(validators: Validators) -> bytes:
    """Any injective text of the set, hashed."""
    return sha256(repr(sorted(validators.items())).encode()).digest()


def signed_header(header: Header, validators: Validators, signers: Set[str]) -> Header:
    """The header with its set and signatures."""
    commit = Commit(tuple(sorted(validators.items())), frozenset(signers))
    return replace(header, validators_hash=validators_hash(validators), commit=commit)


def power(validators: Validators, names: Set[str]) -> int:
    """The power of those of the set who are in `names`."""
    return sum(votes for name, votes in validators.items() if name in names)


def valid_by_validators(trust: Trust, header: Header) -> bool | None:
    """valid(T, U) by validator sets. The header is held against the trusted one next below it."""
    below = [trusted for height, trusted in trust if height < header.height]
    if (header.height, header) in trust:
        return True
    if header.commit is None or not below:
        return False
    trusted = max(below, key=lambda one: one.height)
    assert trusted.commit is not None
    old, new = dict(trusted.commit.validators), dict(header.commit.validators)
    if validators_hash(new) != header.validators_hash:
        return False
    of_new = power(new, header.commit.signers)
    if trusted.validators_hash == header.validators_hash:
        return 3 * of_new > 2 * sum(new.values())
    if 3 * of_new < 2 * sum(new.values()):
        return False
    if 3 * power(old, header.commit.signers) >= 2 * sum(old.values()):
        return True
    return False if header.height == trusted.height + 1 else None


def bisect(trusted: int, wanted: int, submit: Callable[[int], bool | None]) -> list[int]:
    """Submit `wanted`; where that is unknown, the middle first. Gives the heights that were accepted, in order."""
    answer = submit(wanted)
    if answer is True:
        return [wanted]
    if answer is False or wanted <= trusted + 1:
        return []
    middle = (trusted + wanted) // 2
    first = bisect(trusted, middle, submit)
    return [*first, *bisect(middle, wanted, submit)] if first and first[-1] == middle else first
