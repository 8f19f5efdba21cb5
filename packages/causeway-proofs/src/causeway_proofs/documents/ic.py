"""Documents of the Internet Computer: certificates of a subnet's state, and slices of streams between subnets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from causeway_proofs.documents.document import ProofDocument, ProofPath, format_bytes, require_trust
from causeway_proofs.documents.ic_leaves import read_leaf
from causeway_proofs.documents.trust import IcPublicKey, Trust
from causeway_proofs.documents.validation import ClaimMismatch
from causeway_proofs.documents.values import (
    Bytes,
    DocumentSection,
    Duration,
    Label,
    Listed,
    Number,
    PrincipalId,
    Time,
    format_time,
)
from causeway_proofs.errors import InvalidInput, ProofError
from causeway_proofs.ic.cbor_reader import MAP, SELF_DESCRIBED, CborReader, cbor_head, cbor_text
from causeway_proofs.ic.certificate import Certificate, decode_certificate, read_time, require_in_ranges, tree_root
from causeway_proofs.ic.certification import Freshness, VerifiedCertificate, verify_certificate
from causeway_proofs.ic.errors import MalformedCertificate, WrongSubnet
from causeway_proofs.ic.hash_tree import HashTree
from causeway_proofs.ic.lookup import format_path, path_steps
from causeway_proofs.ic.primitives import CURRENT, CertificationVersion, principal_to_text
from causeway_proofs.ic.slice import (
    CertifiedStreamSlice,
    StreamSlice,
    decode_certified_stream,
    decode_certified_stream_slice,
)
from causeway_proofs.limits import MAX_DEPTH
from causeway_proofs.steps import Step

CANISTER = b"canister"
REQUEST_STATUS = b"request_status"

_ANSWER = cbor_head(MAP, 1) + cbor_text("certificate")


class PathClaim(DocumentSection):
    """What stands at a path of the state: a value, or nothing (``absent`` true)."""

    path: Annotated[Listed[Label], Field(min_length=1, max_length=MAX_DEPTH)]
    value: Bytes | None = None
    absent: bool = False

    @property
    def text(self) -> str:
        """Return the claim in one line, with what a header or message of a stream says."""
        said = "" if self.value is None else read_leaf(self.path, self.value)
        return f"{self.title}: {said}" if said else self.title

    @property
    def title(self) -> str:
        """Return which bytes are where."""
        where = format_path(self.path)
        return f"there is nothing at {where}" if self.value is None else f"{format_bytes(self.value)} is at {where}"


class FreshnessClaim(DocumentSection):
    """How old a certificate may be at the time ``now``; see ``Freshness``."""

    now: Time
    max_age: Duration
    max_ahead: Duration = 0
    max_delegation_age: Duration | None = None

    @property
    def rule(self) -> Freshness:
        """Return the rule that a certificate is checked against."""
        return Freshness(self.now, self.max_age, self.max_ahead, self.max_delegation_age)


class StreamBounds(DocumentSection):
    """Indices of a stream: the first, and the one after the last. ``signals_end`` of a header only."""

    begin: Number | None = None
    end: Number | None = None
    signals_end: Number | None = None


class IcCertificate(ProofDocument):
    """A certificate: ``proof`` is its CBOR form, or a node's answer to ``read_state``.

    ``paths`` are what it is to show of the state, ``canister_id`` and ``subnet_id`` say whose word it must be. Of a
    path below ``canister``, the canister it names must be one of the subnet's in any case; below ``request_status``
    only ``canister_id`` says which one that is.
    """

    kind: Literal["ic_certificate"]
    paths: Listed[PathClaim] = Field(default_factory=list)
    canister_id: PrincipalId | None = None
    subnet_id: PrincipalId | None = None
    time: Time | None = None
    freshness: FreshnessClaim | None = None
    proof: Bytes
    accepts: ClassVar[tuple[type[Trust], ...]] = (IcPublicKey,)

    def claim(self) -> str:
        """Return what is claimed, in one line."""
        claims = [path.text for path in self.paths]
        if self.canister_id is not None:
            claims.append(f"canister {principal_to_text(self.canister_id)} is the subnet's")
        if self.subnet_id is not None:
            claims.append(f"subnet {principal_to_text(self.subnet_id)} has signed")
        if self.time is not None:
            claims.append(f"its time is {format_time(self.time)}")
        if self.freshness is not None:
            claims.append(
                f"it is at most {self.freshness.max_age / 10**9:g} s old at {format_time(self.freshness.now)}"
            )
        return "; ".join(claims) or "a state is certified"

    def notes(self, trust: Trust) -> Sequence[str]:
        """Return how old it is, where no claim says it."""
        if self.time is not None or self.freshness is not None:
            return ()
        time = read_time(decode_certificate(self.certificate).tree)
        return [f"its time is {format_time(time)}, and nothing is claimed of its age"]

    def verify(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the way of every path to the root key; errors as of ``verify_certificate``, and ``ClaimMismatch``."""
        require_trust(trust, IcPublicKey)
        assert isinstance(trust, IcPublicKey)
        self._require_complete()
        verified = verify_certificate(
            self.certificate,
            trust.raw,
            canister_id=self.canister_id,
            subnet_id=self.subnet_id,
            root_subnet_id=trust.subnet_id,
            freshness=None if self.freshness is None else self.freshness.rule,
        )
        if self.time is not None and self.time != verified.time:
            raise ClaimMismatch(
                f"the certificate is of {format_time(verified.time)}, claimed is {format_time(self.time)}"
            )
        for claim in self.paths:
            _require_shown(verified, claim)
        tracks = [ProofPath(claim.title, verified.explain(claim.path)) for claim in self.paths]
        return tuple(tracks) or (ProofPath(f"a state of {format_time(verified.time)}", verified.steps),)

    def sketch(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the way of the paths that the tree shows to its root, and the key that the delegation shows."""
        certificate = decode_certificate(self.certificate)
        signed = _signed_steps(certificate)
        tracks = []
        for claim in self.paths:
            way = _way(certificate.tree, claim)
            if way:
                tracks.append(ProofPath(claim.title, way + signed))
        return tuple(tracks) or (ProofPath("the certificate", signed),)

    @property
    def certificate(self) -> bytes:
        """Return the certificate, taken out of the answer of a node to ``read_state`` where ``proof`` is that.

        Raises:
            MalformedCertificate: the answer has more in it, or is not in the shortest CBOR.
        """
        if not self.proof.removeprefix(SELF_DESCRIBED).startswith(_ANSWER):
            return self.proof
        reader = CborReader(self.proof, "the answer to read_state", MalformedCertificate)
        reader.skip_self_description()
        reader.head(MAP)
        reader.text()
        certificate = reader.byte_string()
        reader.end()
        return certificate

    def _require_complete(self) -> None:
        for position, claim in enumerate(self.paths):
            if (claim.value is None) != claim.absent:
                raise InvalidInput(f"paths[{position}]: give either a value, or absent as true")
            if claim.path[0] == REQUEST_STATUS and self.canister_id is None:
                raise InvalidInput(
                    f"canister_id: missing; {format_path(claim.path[:1])} in paths[{position}] is the word of the "
                    "canister's subnet, which must be known"
                )


class IcStreamSlice(ProofDocument):
    """A slice of a stream from one subnet to another: ``proof`` is a CertifiedStreamSlice in protobuf.

    Trusted is the key of ``source``. ``header`` and ``messages`` are what the slice is to show, as far as given.
    """

    kind: Literal["ic_stream_slice"]
    source: PrincipalId
    destination: PrincipalId
    header: StreamBounds | None = None
    messages: StreamBounds | None = None
    version: Number = int(CURRENT)
    proof: Bytes
    accepts: ClassVar[tuple[type[Trust], ...]] = (IcPublicKey,)

    def claim(self) -> str:
        """Return what is claimed, in one line."""
        text = f"stream from {principal_to_text(self.source)} to {principal_to_text(self.destination)}"
        for name, bounds in (("header", self.header), ("messages", self.messages)):
            if bounds is not None:
                given = ", ".join(f"{field} {value}" for field, value in bounds.model_dump(exclude_none=True).items())
                text += f"; {name}: {given}"
        return text

    def verify(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the way from the payload to the key; errors as of ``decode_certified_stream``, and more.

        Raises:
            WrongSubnet: the trusted key is another subnet's.
            ClaimMismatch: header or messages are others than claimed.
        """
        require_trust(trust, IcPublicKey)
        assert isinstance(trust, IcPublicKey)
        version = self._version()
        if self.messages is not None and self.messages.signals_end is not None:
            raise InvalidInput("messages: signals_end: only a header has it")
        if trust.owner != self.source:
            raise WrongSubnet(
                f"the key is of subnet {principal_to_text(trust.owner)}, the slice should be from "
                f"{principal_to_text(self.source)}"
            )
        shown = decode_certified_stream(self.destination, self.source, self.proof, trust.raw, version)
        self._require_claimed(shown)
        certified = decode_certified_stream_slice(self.proof, version)
        key = Step("signature", f"of the root under the key of subnet {principal_to_text(self.source)}", trust.raw)
        return (ProofPath(self.claim(), (*certified.verify_root(), key)),)

    def sketch(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the root that payload and witness lead to."""
        certified = decode_certified_stream_slice(self.proof, self._version())
        return (ProofPath(self.claim(), _slice_steps(certified)),)

    def _version(self) -> CertificationVersion:
        try:
            return CertificationVersion(self.version)
        except ValueError:
            first, last = min(CertificationVersion), max(CertificationVersion)
            raise InvalidInput(f"version: {self.version}: must be from {first:d} to {last:d}") from None

    def _require_claimed(self, shown: StreamSlice) -> None:
        header = shown.header
        facts = {"begin": header.begin, "end": header.end, "signals_end": header.signals_end}
        _require_bounds("header", self.header, facts)
        if shown.messages:
            facts = {"begin": shown.messages[0][0], "end": shown.messages[-1][0] + 1}
        else:
            facts = {"begin": header.begin, "end": header.begin}
        _require_bounds("messages", self.messages, facts)


def _require_bounds(what: str, claimed: StreamBounds | None, facts: dict[str, int]) -> None:
    for name, value in ({} if claimed is None else claimed.model_dump(exclude_none=True)).items():
        if facts[name] != value:
            raise ClaimMismatch(f"{what}: {name} is {facts[name]} in the slice, claimed is {value}")


def _slice_steps(certified: CertifiedStreamSlice) -> tuple[Step, ...]:
    payload = certified.payload
    shown = f"header and {len(payload.messages)} messages of the stream to {principal_to_text(payload.subnet_id)}"
    return (
        Step("payload", shown, payload.header_bytes),
        Step("witness", "payload plugged in, pruned to the root", certified.root_digest()),
    )


def _require_shown(verified: VerifiedCertificate, claim: PathClaim) -> None:
    if claim.path[0] == CANISTER and len(claim.path) > 1 and verified.delegation is not None:
        # Any subnet could write any canister's id into its own state.
        require_in_ranges(verified.delegation.tree, verified.delegation.subnet_id, claim.path[1])
    if claim.absent:
        verified.require_absent(claim.path)
        return
    value = verified.value(claim.path)
    if value != claim.value:
        raise ClaimMismatch(
            f"{format_bytes(value)} is at {format_path(claim.path)}, claimed is {format_bytes(claim.value or b'')}"
        )


def _way(tree: HashTree, claim: PathClaim) -> tuple[Step, ...]:
    try:
        return path_steps(tree, claim.path)
    except ProofError:
        return ()


def _signed_steps(certificate: Certificate) -> tuple[Step, ...]:
    steps = [Step("root", "the state tree", tree_root(certificate))]
    if certificate.delegation is not None:
        steps.append(Step("delegation", f"to subnet {principal_to_text(certificate.delegation.subnet_id)}"))
    return tuple(steps)
