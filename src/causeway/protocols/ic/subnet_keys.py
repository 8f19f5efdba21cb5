"""Who certifies a subnet's state: one key, or nodes with shares of it of which some are faulty (IC reference 2.9).

Keys follow from the scenario's seed, so that a run comes out the same every time; or the options list a subnet's public
key, and the secret one is in a file. Roots do not contain signatures, and of a root there is but one signature under a
key (BLS): whoever executes a lake again without the secret key verifies the certifications that its headers have, and
goes on with the same. Nothing is kept but what can be derived again: a ``Certifier`` is made for a round, from the
registry and the faults in force.
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
class CertificationResult:
    """What came of certifying one state.

    Attributes:
        certification: encoded; None where too few nodes gave good shares.
        false_shares: numbers of the nodes whose shares were found to be false, ascending. Whoever's share was not
            needed is not looked at.
    """

    certification: bytes | None
    false_shares: Nodes = ()


@dataclass(frozen=True)
class CertificationTask:
    """A state that is to be certified.

    Attributes:
        position: of the subnet.
        height: the subnet's own.
        root: of the state, 32 bytes.
        height_witness: that the state has that height, encoded (certification version 24 on).
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
    """Shares of one state's signature: the first of them, combined (empty if they are too few), and those to come."""

    due: CertificationTask
    nodes: Nodes
    key: ThresholdKey | None
    first: list[tuple[int, bytes]]
    arriving: Iterator[tuple[int, bytes]]
    signature: bytes = b""

    def without_false_shares(self) -> CertificationResult:
        """Return what comes of verifying one share after the other."""
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
    """Signs the states of subnets, one signature a subnet and height.

    Attributes:
        numbers: of the subnets by position.
        seed: of the scenario, from 0 to 2**64 - 1.
        options: ``certification`` says who signs, ``nodes`` how many nodes a subnet has.
        nodes: each subnet's nodes by position, where the registry names them; without, they are 0 to
            ``options.nodes - 1``. The same key is shared again when they change.
        external: public keys of subnets that certify elsewhere, by position.
        faults: of nodes.
        listed: public keys of subnets whose secret keys are in files, by position; the other keys are drawn.
        secrets: has those secret keys, or what the lake has recorded.
        round: the height of the lake that the states are made at.
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
        """Return the key under which the certifications of the subnet at ``position`` verify, 96 bytes."""
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
        """Return the certification of one state (``certify_all``)."""
        return self.certify_all([CertificationTask(position, height, root, height_witness)])[0]

    def certify_all(self, due: Sequence[CertificationTask]) -> list[CertificationResult]:
        """Return the certification of each state.

        With ``certification = threshold``, shares are taken as ``rotated`` says until they are enough, and combined
        unseen; all signatures are verified together. Only of one that does not hold is each share verified: false ones
        are left out, and further nodes asked. Where a lake is executed again without a subnet's secret key, what its
        headers have is verified.

        Raises:
            InvalidInput: a subnet certifies elsewhere, or ``certification = off``.
            NotAsRecorded: the headers of a lake that is executed again do not have the certification of a root of
                theirs.
        """
        for one in due:
            if one.position in self.external:
                raise InvalidInput(f"subnet {self.numbers[one.position]} certifies elsewhere")
            if not self.options.certified:
                raise InvalidInput(f"subnet {self.numbers[one.position]} does not certify: certification = off")
        signing = [one for one in due if not (self.secrets.certifications is not None and one.position in self.listed)]
        if self.options.certification == "bls":
            made = [
                one.certified(self._secret_key(one.position).sign(certification_message(one.root))) for one in signing
            ]
        else:
            made = self._combined(signing)
        if len(signing) == len(due):
            return made
        new, known = (
            iter(made),
            iter(
                self._recorded(
                    [one for one in due if (self.secrets.certifications is not None and one.position in self.listed)]
                )
            ),
        )
        return [
            next(known if (self.secrets.certifications is not None and one.position in self.listed) else new)
            for one in due
        ]

    # ---- without the secret keys: what a lake has recorded

    def _recorded(self, due: Sequence[CertificationTask]) -> list[CertificationResult]:
        """Return what the lake has of each state, verified: that of another root is none, and the root tells it."""
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

    def _differs(self, due: CertificationTask, what: str) -> NotAsRecorded:
        subnet = f"the certification of height {due.height} of subnet {self.numbers[due.position]}"
        return NotAsRecorded(f"headers of height {self.round}: {subnet} is {what}", self.round, due.position)

    def _enough(self, due: CertificationTask) -> tuple[bool, Nodes]:
        """Return whether enough nodes sign a state, and which false shares are found: as ``_combined`` comes out."""
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
        whole = [attempt for attempt in attempts if attempt.signature]
        errors = iter(
            verify_certifications(
                [attempt.due.root for attempt in whole],
                [attempt.signature for attempt in whole],
                [self.public_key(attempt.due.position) for attempt in whole],
            )
        )
        return [
            attempt.due.certified(attempt.signature)
            if attempt.signature and next(errors) is None
            else attempt.without_false_shares()
            for attempt in attempts
        ]

    def _attempt(self, due: CertificationTask) -> _Attempt:
        """Return the first shares of a state, combined if they are enough."""
        nodes = self._nodes_of(due.position)
        number = int(self.numbers[due.position])
        if not nodes:
            return _Attempt(due, nodes, None, [], iter(()))
        dealing = _dealing(self._secret_key(due.position), self._shares_seed(due.position), nodes)
        needed = dealing.key.threshold
        arriving = self._shares(number, nodes, dealing, due.height, certification_message(due.root))
        first = list(islice(arriving, needed))
        signature = combine(first, needed) if len(first) == needed else b""
        return _Attempt(due, nodes, dealing.key, first, arriving, signature)

    def _nodes_of(self, position: int) -> Nodes:
        return tuple(range(self.options.nodes)) if self.nodes is None else self.nodes[position]

    def _shares_seed(self, position: int) -> bytes:
        """Return what the shares of a subnet's key are drawn from: as secret as the key is."""
        if position in self.listed:
            return SHARES_DOMAIN + self._secret_key(position).to_bytes()
        return _key_seed(self.seed, int(self.numbers[position]))

    def _shares(
        self, number: int, nodes: Nodes, dealing: Dealing, height: int, message: bytes
    ) -> Iterator[tuple[int, bytes]]:
        """Yield the shares as they arrive, each with the index of its signer."""
        for index in rotate_signers(len(nodes), height):
            node = (number, nodes[index - 1])
            if node not in self.faults.silent:
                signed = FALSE_SHARE + message if node in self.faults.false else message
                yield index, dealing.secrets[index - 1].sign(signed)


def rotate_signers(signers: int, height: int) -> list[int]:
    """Return the indexes of signers, from 1, in the order in which their shares arrive: another is first each height.

    So every faulty node is found in the course of time, and no share is made that is not needed.
    """
    return [1 + (height + at) % signers for at in range(signers)]


def signing_threshold(nodes: int) -> int:
    """Return how many of ``nodes`` have to sign: 2 f + 1, where f is the largest number below a third of them."""
    return 2 * ((nodes - 1) // 3) + 1


def listed_keys(options: IcOptions, names: Sequence[str]) -> dict[int, bytes]:
    """Return the public keys that the options list for subnets of a lake, by the subnets' position among ``names``."""
    return {names.index(name): bytes.fromhex(key) for name, key in options.chain_keys.items() if name in names}


@lru_cache(maxsize=_KEPT)
def derive_secret_key(seed: int, number: int) -> SecretKey:
    """Return the key of subnet ``number`` in a run with ``seed``."""
    return SecretKey.derive(_key_seed(seed, number))


@lru_cache(maxsize=_KEPT)
def derive_public_key(seed: int, number: int) -> bytes:
    """Return the public key of subnet ``number`` in a run with ``seed``, 96 bytes."""
    return derive_secret_key(seed, number).public_key()


@lru_cache(maxsize=_KEPT)
def _dealing(secret: SecretKey, seed: bytes, nodes: Nodes) -> Dealing:
    """Return the sharing of a subnet's key among its nodes: the same key, and new shares for other nodes."""
    threshold = signing_threshold(len(nodes))
    members = b"".join(node.to_bytes(_NUMBER_BYTES, "big") for node in nodes)
    return deal(secret, threshold, len(nodes), seeded_coefficients(seed + members, threshold))


def _key_seed(seed: int, number: int) -> bytes:
    return KEY_DOMAIN + seed.to_bytes(_NUMBER_BYTES, "big") + number.to_bytes(_NUMBER_BYTES, "big")
