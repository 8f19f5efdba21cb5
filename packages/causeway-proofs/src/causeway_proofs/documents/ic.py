"""Proof documents of the Internet Computer: certificates and stream slices, and their leaves in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from causeway_proofs.documents.document import ProofDocument, ProofPath, format_bytes, require_trust
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
from causeway_proofs.errors import CausewayError, InvalidInput, ProofError
from causeway_proofs.ic.cbor_reader import MAP, SELF_DESCRIBED, CborReader, cbor_head, cbor_text
from causeway_proofs.ic.certificate import Certificate, decode_certificate, read_time, require_in_ranges, tree_root
from causeway_proofs.ic.certification import Freshness, VerifiedCertificate, verify_certificate
from causeway_proofs.ic.errors import MalformedCertificate, WrongSubnet, path_text
from causeway_proofs.ic.hash_tree import HashTree
from causeway_proofs.ic.lookup import path_steps
from causeway_proofs.ic.messages import (
    Data,
    StreamMessage,
    StreamRefund,
    StreamRequest,
    StreamResponse,
    decode_stream_message,
)
from causeway_proofs.ic.primitives import CURRENT, CertificationVersion, principal_to_text
from causeway_proofs.ic.slice import (
    CertifiedStreamSlice,
    StreamSlice,
    decode_certified_stream,
    decode_certified_stream_slice,
)
from causeway_proofs.ic.slice_payload import STREAMS
from causeway_proofs.ic.stream_header import StreamHeader, decode_stream_header
from causeway_proofs.ic.stream_tree import HEADER, MESSAGES_LABEL
from causeway_proofs.limits import MAX_DEPTH
from causeway_proofs.steps import Step

Name = Callable[[bytes], str]
"""Returns the display name of a canister."""

_VERSIONS = sorted(CertificationVersion, reverse=True)


def read_leaf(path: Sequence[bytes], value: bytes) -> str:
    """Describe the leaf ``value`` at a path, if it is a header or message of a stream.

    Returns an empty text for other leaves.

    Only the bytes are certified, not the description.
    """
    for version in _VERSIONS:
        try:
            if len(path) == 3 and path[0] == STREAMS and path[2] == HEADER:
                return header_text(decode_stream_header(value, version))
            if len(path) == 4 and path[0] == STREAMS and path[2] == MESSAGES_LABEL:
                return message_text(decode_stream_message(value, version))
        except CausewayError:
            continue
    return ""


def header_text(header: StreamHeader) -> str:
    """Describe the header of a stream."""
    rejected = f", {len(header.reject_signals):,} rejected" if header.reject_signals else ""
    return f"begin {header.begin}, end {header.end}, signals_end {header.signals_end}{rejected}"


def message_text(message: StreamMessage, name: Name = principal_to_text) -> str:
    """Describe a message of a stream; ``name`` formats canister ids."""
    match message:
        case StreamRequest():
            kind, ends, amount = "request", (message.sender, message.receiver), message.cycles_payment
            callback = f", callback {message.sender_reply_callback}"
            text = f"method {message.method_name}, payload of {len(message.method_payload):,} bytes{callback}"
        case StreamResponse():
            kind, ends, amount = "response", (message.respondent, message.originator), message.cycles_refund
            callback = f", callback {message.originator_reply_callback}"
            answer = message.payload
            result_text = f"{len(answer.data):,} bytes" if isinstance(answer, Data) else f"reject {answer.code.name}"
            text = f"{result_text}{callback}"
        case StreamRefund():
            return f"refund of {message.amount:,} cycles to {name(message.recipient)}"
    sender, receiver = (name(end) for end in ends)
    return f"{kind} from {sender} to {receiver}, {text}" + (f", {amount:,} cycles" if amount else "")


CANISTER = b"canister"
REQUEST_STATUS = b"request_status"

_ANSWER = cbor_head(MAP, 1) + cbor_text("certificate")


class PathClaim(DocumentSection):
    """The claimed content of a path in the state: a value, or nothing (``absent`` true)."""

    path: Annotated[Listed[Label], Field(min_length=1, max_length=MAX_DEPTH)]
    value: Bytes | None = None
    absent: bool = False

    @property
    def text(self) -> str:
        """Return the claim in one line, with the content of a stream's header or message in words."""
        description = "" if self.value is None else read_leaf(self.path, self.value)
        return f"{self.title}: {description}" if description else self.title

    @property
    def title(self) -> str:
        """Return the path with its bytes."""
        where = path_text(self.path)
        return f"there is nothing at {where}" if self.value is None else f"{format_bytes(self.value)} is at {where}"


class FreshnessClaim(DocumentSection):
    """The maximal age of a certificate at the time ``now``; see ``Freshness``."""

    now: Time
    max_age: Duration
    max_ahead: Duration = 0
    max_delegation_age: Duration | None = None

    @property
    def rule(self) -> Freshness:
        """Return the corresponding ``Freshness``."""
        return Freshness(self.now, self.max_age, self.max_ahead, self.max_delegation_age)


class StreamBounds(DocumentSection):
    """Bounds of a stream: begin, end (exclusive), and ``signals_end`` of a header only."""

    begin: Number | None = None
    end: Number | None = None
    signals_end: Number | None = None


class IcCertificate(ProofDocument):
    """A certificate of a subnet's state.

    For a path below ``canister``, the subnet must host the canister that the path names; for one below
    ``request_status``, only ``canister_id`` names the canister.

    Attributes:
        paths: claimed contents of the state.
        canister_id: the canister that the signing subnet must host.
        subnet_id: the subnet that must have signed.
        time: claimed time of the certificate.
        freshness: maximal age of the certificate.
        proof: the certificate in CBOR, or a node's answer to ``read_state``.
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
        """Return the claims in one line."""
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
        """Return the certificate's age if no claim states it."""
        if self.time is not None or self.freshness is not None:
            return ()
        time = read_time(decode_certificate(self.certificate).tree)
        return [f"its time is {format_time(time)}, and nothing is claimed of its age"]

    def verify(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the path of every claim to the root key.

        Args:
            trust: the trusted root key.

        Returns:
            The paths.

        Raises:
            ClaimMismatch: the certificate differs from a claim.
            ProofError: as ``verify_certificate``.
        """
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
        """Return the shown paths up to the tree's root, and the key that the delegation shows."""
        certificate = decode_certificate(self.certificate)
        signed = _signed_steps(certificate)
        tracks = []
        for claim in self.paths:
            way = _path_to_root(certificate.tree, claim)
            if way:
                tracks.append(ProofPath(claim.title, way + signed))
        return tuple(tracks) or (ProofPath("the certificate", signed),)

    @property
    def certificate(self) -> bytes:
        """Return the certificate, extracted from an answer to ``read_state`` if needed.

        Returns:
            The encoded certificate.

        Raises:
            MalformedCertificate: the answer has other content, or is not in the shortest CBOR.
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
                    f"canister_id: missing; {path_text(claim.path[:1])} in paths[{position}] is the word of the "
                    "canister's subnet, which must be known"
                )


class IcStreamSlice(ProofDocument):
    """A slice of a stream from one subnet to another.

    Attributes:
        source: id of the sending subnet, whose key is trusted.
        destination: id of the receiving subnet.
        header: claimed bounds of the stream, optional.
        messages: claimed bounds of the messages, optional.
        version: certification version.
        proof: a CertifiedStreamSlice in protobuf.
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
        """Return the claims in one line."""
        text = f"stream from {principal_to_text(self.source)} to {principal_to_text(self.destination)}"
        for name, bounds in (("header", self.header), ("messages", self.messages)):
            if bounds is not None:
                given = ", ".join(f"{field} {value}" for field, value in bounds.model_dump(exclude_none=True).items())
                text += f"; {name}: {given}"
        return text

    def verify(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the path from the payload to the key.

        Args:
            trust: the trusted key of the sending subnet.

        Returns:
            One path.

        Raises:
            WrongSubnet: the trusted key is another subnet's.
            ClaimMismatch: header or messages differ from the claims.
            ProofError: as ``decode_certified_stream``.
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
        content = decode_certified_stream(self.destination, self.source, self.proof, trust.raw, version)
        self._require_claimed(content)
        certified = decode_certified_stream_slice(self.proof, version)
        key = Step("signature", f"of the root under the key of subnet {principal_to_text(self.source)}", trust.raw)
        return (ProofPath(self.claim(), (*certified.verify_root(), key)),)

    def sketch(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the root computed from payload and witness."""
        certified = decode_certified_stream_slice(self.proof, self._version())
        return (ProofPath(self.claim(), _slice_steps(certified)),)

    def _version(self) -> CertificationVersion:
        try:
            return CertificationVersion(self.version)
        except ValueError:
            first, last = min(CertificationVersion), max(CertificationVersion)
            raise InvalidInput(f"version: {self.version}: must be from {first:d} to {last:d}") from None

    def _require_claimed(self, content: StreamSlice) -> None:
        header = content.header
        facts = {"begin": header.begin, "end": header.end, "signals_end": header.signals_end}
        _require_bounds("header", self.header, facts)
        if content.messages:
            facts = {"begin": content.messages[0][0], "end": content.messages[-1][0] + 1}
        else:
            facts = {"begin": header.begin, "end": header.begin}
        _require_bounds("messages", self.messages, facts)


def _require_bounds(noun: str, claimed: StreamBounds | None, facts: dict[str, int]) -> None:
    for name, value in ({} if claimed is None else claimed.model_dump(exclude_none=True)).items():
        if facts[name] != value:
            raise ClaimMismatch(f"{noun}: {name} is {facts[name]} in the slice, claimed is {value}")


def _slice_steps(certified: CertifiedStreamSlice) -> tuple[Step, ...]:
    payload = certified.payload
    summary = f"header and {len(payload.messages)} messages of the stream to {principal_to_text(payload.subnet_id)}"
    return (
        Step("payload", summary, payload.header_bytes),
        Step("witness", "payload plugged in, pruned to the root", certified.root_digest()),
    )


def _require_shown(verified: VerifiedCertificate, claim: PathClaim) -> None:
    if claim.path[0] == CANISTER and len(claim.path) > 1 and verified.delegation is not None:
        # A subnet could write any canister's id into its own state.
        require_in_ranges(verified.delegation.tree, verified.delegation.subnet_id, claim.path[1])
    if claim.absent:
        verified.require_absent(claim.path)
        return
    value = verified.value(claim.path)
    if value != claim.value:
        raise ClaimMismatch(
            f"{format_bytes(value)} is at {path_text(claim.path)}, claimed is {format_bytes(claim.value or b'')}"
        )


def _path_to_root(tree: HashTree, claim: PathClaim) -> tuple[Step, ...]:
    try:
        return path_steps(tree, claim.path)
    except ProofError:
        return ()


def _signed_steps(certificate: Certificate) -> tuple[Step, ...]:
    steps = [Step("root", "the state tree", tree_root(certificate))]
    if certificate.delegation is not None:
        steps.append(Step("delegation", f"to subnet {principal_to_text(certificate.delegation.subnet_id)}"))
    return tuple(steps)
