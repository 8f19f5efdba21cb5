"""Who certifies a subnet's state: one key, or nodes with shares of it of which some are faulty (IC reference 2.9).

All keys follow from the scenario's seed, so that a run comes out the same every time. Nothing is kept but what can be
derived again: a ``Certifier`` is made for a round, from the registry and the faults in force.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice

from causeway.model.errors import InvalidInput
from causeway.model.order import U64
from causeway.proofs.errors import ProofError
from causeway.proofs.ic.bls import SecretKey, verify
from causeway.proofs.ic.certificate import certification_message
from causeway.proofs.ic.errors import InvalidShare
from causeway.proofs.ic.slice_certification import Certification, encode_certification
from causeway.proofs.ic.threshold import Dealing, combine, deal, seeded_coefficients
from causeway.protocols.ic.options import IcOptions

Nodes = tuple[int, ...]
"""Numbers of a subnet's nodes, ascending."""

KEY_DOMAIN = b"causeway subnet"
FALSE_SHARE = b"a false share of "

_KEPT = 4096
_NUMBER_BYTES = 8


@dataclass(frozen=True)
class ShareFaults:
    """Nodes that do not sign as they should, each by the numbers of its subnet and of its own.

    Attributes:
        false: they give a share that is none of the state's.
        silent: they give none.
    """

    false: frozenset[tuple[int, int]] = frozenset()
    silent: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True)
class Certified:
    """What came of certifying one state.

    Attributes:
        certification: encoded; None where too few nodes gave good shares.
        false_shares: numbers of the nodes whose shares were found to be false, ascending. Whoever's share was not
            needed is not looked at.
    """

    certification: bytes | None
    false_shares: Nodes = ()


@dataclass(frozen=True)
class Certifier:
    """Signs the states of subnets, one signature a subnet and height.

    Attributes:
        numbers: of the subnets by position.
        seed: of the scenario, from 0 to 2**64 - 1.
        options: ``certification`` says who signs, ``nodes`` how many nodes a subnet has.
        nodes: each subnet's nodes by position, where the registry names them; without, they are 0 to
            ``options.nodes - 1``. The same key is shared again when they change.
        external: public keys of subnets that certify elsewhere, by position.
        faults: of nodes.
    """

    numbers: U64
    seed: int
    options: IcOptions
    nodes: Sequence[Nodes] | None = None
    external: Mapping[int, bytes] = field(default_factory=dict)
    faults: ShareFaults = ShareFaults()

    def public_key(self, position: int) -> bytes:
        """Return the key under which the certifications of the subnet at ``position`` verify, 96 bytes."""
        external = self.external.get(position)
        return public_key_of(self.seed, int(self.numbers[position])) if external is None else external

    def certify(self, position: int, height: int, root: bytes, height_witness: bytes | None = None) -> Certified:
        """Return the certification of the state with ``root`` of the subnet at ``position``.

        With ``certification = threshold``, shares are taken as ``rotated`` says until they are enough, and combined
        unseen; only when the signature does not hold, each share is verified, and false ones are left out.

        Args:
            height: the subnet's own, of the state.
            root: of the state, 32 bytes.
            height_witness: that the state has that height, encoded.

        Raises:
            InvalidInput: the subnet certifies elsewhere, or ``certification = off``.
        """
        if position in self.external or not self.options.certified:
            why = "certifies elsewhere" if position in self.external else "does not certify: certification = off"
            raise InvalidInput(f"subnet {self.numbers[position]} {why}")
        number, message = int(self.numbers[position]), certification_message(root)
        false: list[int] = []
        signature: bytes | None
        if self.options.certification == "bls":
            signature = secret_key_of(self.seed, number).sign(message)
        else:
            signature, false = self._combined(number, self._nodes(position), height, message)
        if signature is None:
            return Certified(None, tuple(sorted(false)))
        certification = Certification(height, root, signature, height_witness=height_witness)
        return Certified(encode_certification(certification), tuple(sorted(false)))

    def _nodes(self, position: int) -> Nodes:
        return tuple(range(self.options.nodes)) if self.nodes is None else self.nodes[position]

    def _combined(self, number: int, nodes: Nodes, height: int, message: bytes) -> tuple[bytes | None, list[int]]:
        """Return the signature, None if there are too few good shares, and the nodes whose shares are false."""
        if not nodes:
            return None, []
        dealing = _dealing(self.seed, number, nodes)
        needed = dealing.key.threshold
        arriving = self._shares(number, nodes, dealing, height, message)
        first = list(islice(arriving, needed))
        if len(first) == needed:
            try:
                signature = combine(first, needed)
                verify(signature, message, dealing.key.public_key)
            except ProofError:
                pass  # A share is false: which one is found below.
            else:
                return signature, []
        good: list[tuple[int, bytes]] = []
        false: list[int] = []
        for index, share in chain(first, arriving):
            try:
                dealing.key.verify_share(index, share, message)
            except InvalidShare:
                false.append(nodes[index - 1])
                continue
            good.append((index, share))
            if len(good) == needed:
                return combine(good, needed), false
        return None, false

    def _shares(
        self, number: int, nodes: Nodes, dealing: Dealing, height: int, message: bytes
    ) -> Iterator[tuple[int, bytes]]:
        """Yield the shares as they arrive, each with the index of its signer."""
        for index in rotated(len(nodes), height):
            node = (number, nodes[index - 1])
            if node not in self.faults.silent:
                signed = FALSE_SHARE + message if node in self.faults.false else message
                yield index, dealing.secrets[index - 1].sign(signed)


def rotated(signers: int, height: int) -> list[int]:
    """Return the indexes of signers, from 1, in the order in which their shares arrive: another is first each height.

    So every faulty node is found in the course of time, and no share is made that is not needed.
    """
    return [1 + (height + at) % signers for at in range(signers)]


def threshold_of(nodes: int) -> int:
    """Return how many of ``nodes`` have to sign: 2 f + 1, where f is the largest number below a third of them."""
    return 2 * ((nodes - 1) // 3) + 1


@lru_cache(maxsize=_KEPT)
def secret_key_of(seed: int, number: int) -> SecretKey:
    """Return the key of subnet ``number`` in a run with ``seed``."""
    return SecretKey.derive(_key_seed(seed, number))


@lru_cache(maxsize=_KEPT)
def public_key_of(seed: int, number: int) -> bytes:
    """Return the public key of subnet ``number`` in a run with ``seed``, 96 bytes."""
    return secret_key_of(seed, number).public_key()


@lru_cache(maxsize=_KEPT)
def _dealing(seed: int, number: int, nodes: Nodes) -> Dealing:
    """Return the sharing of a subnet's key among its nodes: the same key, and new shares for other nodes."""
    threshold = threshold_of(len(nodes))
    members = b"".join(node.to_bytes(_NUMBER_BYTES, "big") for node in nodes)
    coefficients = seeded_coefficients(_key_seed(seed, number) + members, threshold)
    return deal(secret_key_of(seed, number), threshold, len(nodes), coefficients)


def _key_seed(seed: int, number: int) -> bytes:
    return KEY_DOMAIN + seed.to_bytes(_NUMBER_BYTES, "big") + number.to_bytes(_NUMBER_BYTES, "big")
