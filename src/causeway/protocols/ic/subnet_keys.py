"""Certifiers of subnet states: one key per subnet, or nodes with shares of it.

Some nodes may be faulty (IC reference 2.9).

Keys derive from the scenario's seed, so runs are reproducible; or the options list a subnet's public key and a file
holds the secret one. Roots do not contain signatures, and BLS signatures are unique. So a lake can be executed again
without the secret key: the run verifies the recorded certifications and continues with them. A ``Certifier`` is derived
for each round from the registry and the active faults.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice

from causeway_proofs.errors import InvalidInput, ProofError
from causeway_proofs.ic.bls import Dealing, SecretKey, ThresholdKey, combine, deal, seeded_coefficients
from causeway_proofs.ic.certificate import certification_message
from causeway_proofs.ic.certification import verify_certifications
from causeway_proofs.ic.errors import InvalidShare
from causeway_proofs.ic.slice import Certification, decode_certification, encode_certification
from causeway_proofs.order import U64

from causeway.protocols.ic.options import IcOptions
from causeway.protocols.shared.secrets import NONE, NotAsRecorded, Secrets

Nodes = tuple[int, ...]
"""Numbers of a subnet's nodes, ascending."""

KEY_DOMAIN = b"causeway subnet"
SHARES_DOMAIN = b"causeway shares of subnet"
FALSE_SHARE = b"a false share of "

_CACHE_SIZE = 4096
_NUMBER_BYTES = 8


@dataclass(frozen=True)
class ShareFaults:
    """Nodes with faulty signature shares, as (subnet number, node number).

    Attributes:
        false: Nodes that give an invalid share.
        silent: Nodes that give no share.
    """

    false: frozenset[tuple[int, int]] = frozenset()
    silent: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True)
class CertificationResult:
    """Result of certifying one state.

    Attributes:
        certification: The encoded certification; None if too few nodes gave valid shares.
        false_shares: Numbers of the nodes with invalid shares, ascending. Unneeded shares are not verified.
    """

    certification: bytes | None
    false_shares: Nodes = ()


@dataclass(frozen=True)
class CertificationTask:
    """A state to certify.

    Attributes:
        position: The position of the subnet.
        height: The subnet's own height.
        root: The state root, 32 bytes.
        height_witness: The encoded witness of the height (certification version 24 on).
    """

    position: int
    height: int
    root: bytes
    height_witness: bytes | None = None

    def certified(self, signature: bytes, false_shares: Iterable[int] = ()) -> CertificationResult:
        """Return the certification with a signature."""
        certification = Certification(self.height, self.root, signature, height_witness=self.height_witness)
        return CertificationResult(encode_certification(certification), tuple(sorted(false_shares)))


@dataclass(frozen=True)
class _Attempt:
    """Shares of one state's signature: the first ones, combined, and the later ones.

    The signature is empty if the first ones are too few.
    """

    due: CertificationTask
    nodes: Nodes
    key: ThresholdKey | None
    first: list[tuple[int, bytes]]
    arriving: Iterator[tuple[int, bytes]]
    signature: bytes = b""

    def without_false_shares(self) -> CertificationResult:
        """Verify the shares one by one and combine the valid ones."""
        good: list[tuple[int, bytes]] = []
        false: list[int] = []
        if self.key is None:
            return CertificationResult(None)
        for index, share in chain(self.first, self.arriving):
            try:
                self.key.verify_share(index, share, certification_message(self.due.root))
            except InvalidShare:
                false.append(self.nodes[index - 1])
                continue
            good.append((index, share))
            if len(good) == self.key.threshold:
                return self.due.certified(combine(good, self.key.threshold), false)
        return CertificationResult(None, tuple(sorted(false)))


@dataclass(frozen=True)
class Certifier:
    """Signer of subnet states, one signature per subnet and height.

    Attributes:
        numbers: The subnet numbers by position.
        seed: The scenario's seed, from 0 to 2**64 - 1.
        options: The protocol options: ``certification`` selects the signers, ``nodes`` the default number of nodes.
        nodes: Each subnet's nodes by position; None for 0 to ``options.nodes - 1``. When they change, the same key is
            shared again.
        external: Public keys of subnets that certify elsewhere, by position.
        faults: The faulty nodes.
        listed: Public keys of subnets with secret keys in files, by position; other keys derive from the seed.
        secrets: These secret keys, or the recorded certifications of the lake.
        round: The lake's height.
    """

    numbers: U64
    seed: int
    options: IcOptions
    nodes: Sequence[Nodes] | None = None
    external: Mapping[int, bytes] = field(default_factory=dict)
    faults: ShareFaults = ShareFaults()
    listed: Mapping[int, bytes] = field(default_factory=dict)
    secrets: Secrets = NONE
    round: int = 0

    def public_key(self, position: int) -> bytes:
        """Return the public key (96 bytes) of the subnet at ``position``."""
        known = self.external.get(position) or self.listed.get(position)
        return derive_public_key(self.seed, int(self.numbers[position])) if known is None else known

    def _secret_key(self, position: int) -> SecretKey:
        listed = self.listed.get(position)
        if listed is None:
            return derive_secret_key(self.seed, int(self.numbers[position]))
        return SecretKey.from_bytes(self.secrets.seeds[listed])

    def certify(
        self, position: int, height: int, root: bytes, height_witness: bytes | None = None
    ) -> CertificationResult:
        """Certify one state (see ``certify_all``)."""
        return self.certify_all([CertificationTask(position, height, root, height_witness)])[0]

    def certify_all(self, due: Sequence[CertificationTask]) -> list[CertificationResult]:
        """Certify states.

        With ``certification = threshold``, shares are combined unverified in the order of ``rotate_signers`` until they
        suffice, and all signatures are verified together. Only for an invalid signature is each share verified; further
        nodes replace the invalid ones. A lake executed again without a subnet's secret key uses the verified
        certifications of its headers.

        Args:
            due: The states.

        Returns:
            The result of each state.

        Raises:
            InvalidInput: A subnet certifies elsewhere, or ``certification = off``.
            NotAsRecorded: The headers of a lake that is executed again lack a certification of one of their roots.
        """
        for one in due:
            if one.position in self.external:
                raise InvalidInput(f"subnet {self.numbers[one.position]} certifies elsewhere")
            if not self.options.certified:
                raise InvalidInput(f"subnet {self.numbers[one.position]} does not certify: certification = off")
        is_recorded = [self.secrets.certifications is not None and task.position in self.listed for task in due]
        signing = [task for task, recorded in zip(due, is_recorded, strict=True) if not recorded]
        if self.options.certification == "bls":
            signed = [
                task.certified(self._secret_key(task.position).sign(certification_message(task.root)))
                for task in signing
            ]
        else:
            signed = self._combined(signing)
        if not any(is_recorded):
            return signed
        new = iter(signed)
        known = iter(self._recorded([task for task, recorded in zip(due, is_recorded, strict=True) if recorded]))
        return [next(known if recorded else new) for recorded in is_recorded]

    # ---- without the secret keys: what a lake has recorded

    def _recorded(self, due: Sequence[CertificationTask]) -> list[CertificationResult]:
        """Return the lake's certification of each state, verified; none for another root."""
        assert self.secrets.certifications is not None
        headers = self.secrets.certifications(self.round)
        found: list[CertificationResult] = []
        for one in due:
            signed, false = self._enough(one)
            recorded = self._certification_in(headers.get(one.position, b""), one) if signed else None
            if recorded is None or recorded.root_hash != one.root:
                found.append(CertificationResult(None, false))
                continue
            error = verify_certifications([one.root], [recorded.signature], [self.public_key(one.position)])[0]
            if recorded.height != one.height or error is not None:
                raise self._differs(one, "not signed with its key" if error else f"of height {recorded.height}")
            found.append(one.certified(recorded.signature, false))
        return found

    def _certification_in(self, encoded: bytes, due: CertificationTask) -> Certification:
        try:
            return decode_certification(encoded)
        except ProofError as error:
            raise self._differs(due, "missing" if not encoded else f"none: {error}") from None

    def _differs(self, due: CertificationTask, problem: str) -> NotAsRecorded:
        subnet = f"the certification of height {due.height} of subnet {self.numbers[due.position]}"
        return NotAsRecorded(f"headers of height {self.round}: {subnet} is {problem}", self.round, due.position)

    def _enough(self, due: CertificationTask) -> tuple[bool, Nodes]:
        """Return True if enough nodes sign a state, and the detected false shares.

        The result equals that of ``_combined``.
        """
        if self.options.certification == "bls":
            return True, ()
        number, nodes = int(self.numbers[due.position]), self._nodes_of(due.position)
        needed = signing_threshold(len(nodes)) if nodes else 1
        arriving = [
            node
            for node in (nodes[index - 1] for index in rotate_signers(len(nodes), due.height))
            if (number, node) not in self.faults.silent
        ]
        if not any((number, node) in self.faults.false for node in arriving[:needed]):
            return len(arriving) >= needed, ()
        good, false = 0, []
        for node in arriving:
            if (number, node) in self.faults.false:
                false.append(node)
                continue
            good += 1
            if good == needed:
                break
        return good == needed, tuple(sorted(false))

    # ---- nodes with shares of a key

    def _combined(self, due: Sequence[CertificationTask]) -> list[CertificationResult]:
        attempts = [self._attempt(one) for one in due]
        complete = [attempt for attempt in attempts if attempt.signature]
        errors = iter(
            verify_certifications(
                [attempt.due.root for attempt in complete],
                [attempt.signature for attempt in complete],
                [self.public_key(attempt.due.position) for attempt in complete],
            )
        )
        return [
            attempt.due.certified(attempt.signature)
            if attempt.signature and next(errors) is None
            else attempt.without_false_shares()
            for attempt in attempts
        ]

    def _attempt(self, due: CertificationTask) -> _Attempt:
        """Collect the first shares of a state, combined if they suffice."""
        nodes = self._nodes_of(due.position)
        number = int(self.numbers[due.position])
        if not nodes:
            return _Attempt(due, nodes, None, [], iter(()))
        # The seed of the shares is as secret as the key.
        secret, listed = self._secret_key(due.position), due.position in self.listed
        seed = SHARES_DOMAIN + secret.to_bytes() if listed else _key_seed(self.seed, number)
        dealing = _dealing(secret, seed, nodes)
        needed = dealing.key.threshold
        arriving = self._shares(number, nodes, dealing, due.height, certification_message(due.root))
        first = list(islice(arriving, needed))
        signature = combine(first, needed) if len(first) == needed else b""
        return _Attempt(due, nodes, dealing.key, first, arriving, signature)

    def _nodes_of(self, position: int) -> Nodes:
        return tuple(range(self.options.nodes)) if self.nodes is None else self.nodes[position]

    def _shares(
        self, number: int, nodes: Nodes, dealing: Dealing, height: int, message: bytes
    ) -> Iterator[tuple[int, bytes]]:
        """Yield the shares in order of arrival, each with the index of its signer."""
        for index in rotate_signers(len(nodes), height):
            node = (number, nodes[index - 1])
            if node not in self.faults.silent:
                signed = FALSE_SHARE + message if node in self.faults.false else message
                yield index, dealing.secrets[index - 1].sign(signed)


def rotate_signers(signers: int, height: int) -> list[int]:
    """Return the indexes of signers, from 1, in the arrival order of their shares at a height.

    Each height starts with another signer. So every faulty node is detected eventually, without unneeded shares.
    """
    return [1 + (height + at) % signers for at in range(signers)]


def signing_threshold(nodes: int) -> int:
    """Return the number of signers: 2 f + 1 for the greatest f below a third of ``nodes``."""
    return 2 * ((nodes - 1) // 3) + 1


def listed_keys(options: IcOptions, names: Sequence[str]) -> dict[int, bytes]:
    """Return the listed public keys (96 bytes) of a lake's subnets, by position.

    Args:
        options: The protocol options.
        names: The names of the subnets by position.
    """
    return {names.index(name): bytes.fromhex(key) for name, key in options.chain_keys.items() if name in names}


@lru_cache(maxsize=_CACHE_SIZE)
def derive_secret_key(seed: int, number: int) -> SecretKey:
    """Return the secret key of subnet ``number`` in a run with ``seed``."""
    return SecretKey.derive(_key_seed(seed, number))


@lru_cache(maxsize=_CACHE_SIZE)
def derive_public_key(seed: int, number: int) -> bytes:
    """Return the public key (96 bytes) of a subnet.

    Args:
        seed: The scenario's seed.
        number: The number of the subnet.
    """
    return derive_secret_key(seed, number).public_key()


@lru_cache(maxsize=_CACHE_SIZE)
def _dealing(secret: SecretKey, seed: bytes, nodes: Nodes) -> Dealing:
    """Share a subnet's key among its nodes; other nodes get new shares of the same key."""
    threshold = signing_threshold(len(nodes))
    members = b"".join(node.to_bytes(_NUMBER_BYTES, "big") for node in nodes)
    return deal(secret, threshold, len(nodes), seeded_coefficients(seed + members, threshold))


def _key_seed(seed: int, number: int) -> bytes:
    return KEY_DOMAIN + seed.to_bytes(_NUMBER_BYTES, "big") + number.to_bytes(_NUMBER_BYTES, "big")
