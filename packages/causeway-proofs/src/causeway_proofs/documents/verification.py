"""Read documents of every kind and verify them.

- ``KINDS``: the document model of each kind; a family is imported on first use.
- Input: JSON with everything, JSON that names a binary proof file, a binary proof with separate claims, or a node's
  answer to ``abci_query`` with ``prove`` (the proof of a key through a chain's stores).
- Verdict: true, false, refused or untrusted (``Decision``).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Any

from causeway_proofs.documents.document import ProofDocument, ProofPath, describe_expected_trust, require_kind
from causeway_proofs.documents.trust import RootTrust, Trust, parse_trust_object
from causeway_proofs.documents.validation import (
    MAX_DOCUMENT_BYTES,
    JsonObject,
    format_value,
    looks_like_json,
    parse_object,
    read_bytes,
    unwrap_rpc_result,
    validate_model,
)
from causeway_proofs.errors import CausewayError, InvalidInput, NotProven, ProofError
from causeway_proofs.ic.cbor_reader import SELF_DESCRIBED
from causeway_proofs.limits import MAX_DEPTH, MAX_PROOF_BYTES

_MODELS = {
    "ic_certificate": "ic:IcCertificate",
    "ic_stream_slice": "ic:IcStreamSlice",
    "ics23": "ics23:Ics23",
    "ics23_batch": "ics23:Ics23Batch",
    "ics23_chained": "ics23:Ics23Chained",
    "ics23_range": "ics23:Ics23Range",
    "tendermint_update": "tendermint:TendermintUpdate",
    "substrate_storage": "substrate:SubstrateStorage",
    "substrate_ordered_root": "substrate:SubstrateOrderedRoot",
    "hrmp_queue": "substrate:HrmpQueue",
    "icmp_message": "icmp:IcmpMessage",
    "xdm_message": "xdm:XdmMessage",
    "mmr_leaf": "mmr:MmrLeaves",
    "mmr_ancestry": "mmr:MmrAncestry",
    "mmr": "mmr:Mmr",
}


class _Kinds(Mapping[str, type[ProofDocument]]):
    """Document models by kind, imported on first use."""

    def __getitem__(self, kind: str) -> type[ProofDocument]:
        module, _, name = _MODELS[kind].partition(":")
        model: type[ProofDocument] = getattr(import_module(f"causeway_proofs.documents.{module}"), name)
        return model

    def __iter__(self) -> Iterator[str]:
        return iter(_MODELS)

    def __len__(self) -> int:
        return len(_MODELS)


KINDS: Mapping[str, type[ProofDocument]] = _Kinds()


SPECS: Mapping[str, str] = {"ics23:iavl": "iavl", "ics23:simple": "tendermint", "ics23:smt": "smt"}
"""Spec of each operation type that a Cosmos SDK node writes."""


def find_query_response(fields: JsonObject) -> JsonObject | None:
    """Return ``response`` of an answer to ``abci_query``, with or without envelope, else None.

    Raises:
        InvalidInput: the answer is a JSON-RPC error.
    """
    refusal = fields.get("error")
    if isinstance(refusal, dict) and "message" in refusal:
        answer_parts = [refusal["message"], *([refusal["data"]] if "data" in refusal else ())]
        raise InvalidInput(f"error: the node answered {': '.join(map(format_value, answer_parts))}")
    result = unwrap_rpc_result(fields)
    if "proofOps" in result or "proof_ops" in result:
        return result
    found = result.get("response")
    return found if isinstance(found, dict) else None


def document_fields(response: JsonObject) -> JsonObject:
    """Convert an answer to the fields of an ``ics23_chained`` document that claims its content.

    Raises:
        InvalidInput: the node rejected the query or gave no proof, or a field is malformed.
    """
    code = response.get("code")
    if code is not None and (isinstance(code, bool) or code != 0):
        raise InvalidInput(
            f"response: the node refused the query: code {format_value(code)}, {format_value(response.get('log'))}"
        )
    proof = response.get("proofOps", response.get("proof_ops"))
    operations = proof.get("ops") if isinstance(proof, dict) else None
    if not isinstance(operations, list) or not 0 < len(operations) <= MAX_DEPTH:
        raise InvalidInput(f"response: proofOps: must have 1 to {MAX_DEPTH} ops: ask the node with prove=true")
    specs, keys, proofs = [], [], []
    for number, operation in enumerate(operations):
        origin = f"response: proofOps: ops[{number}]"
        kind = operation.get("type") if isinstance(operation, dict) else None
        if not isinstance(kind, str) or kind not in SPECS:
            raise InvalidInput(f"{origin}: type: {format_value(kind)}: must be one of {', '.join(SPECS)}")
        specs.append(SPECS[kind])
        keys.append(_bytes(operation, "key", origin))
        proofs.append(_bytes(operation, "data", origin))
    claimed_key = _bytes(response, "key", "response")
    if claimed_key != keys[0]:
        raise InvalidInput(f"response: key: is 0x{claimed_key.hex()}, its proof is of 0x{keys[0].hex()}")
    return {
        "kind": "ics23_chained",
        "specs": specs,
        "path": [f"0x{key.hex()}" for key in reversed(keys)],
        "value": _bytes(response, "value", "response"),
        "proof": proofs,
        "state_height": response.get("height"),
    }


def _bytes(value: JsonObject, name: str, where: str) -> bytes:
    """Decode base64, null as empty. Raises ``InvalidInput``."""
    text: Any = value.get(name)
    try:
        return b"" if text is None else base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise InvalidInput(f"{where}: {name}: {format_value(text)}: is not base64") from None


PROOF, PROOF_FILE, KIND, TRUST, ROOT = "proof", "proof_file", "kind", "trust", "root"


@dataclass(frozen=True, slots=True)
class Reading:
    """A parsed document.

    Attributes:
        document: the document.
        embedded_trust: trust that the document itself names, or None.
        where: its origin, for messages.
    """

    document: ProofDocument
    embedded_trust: Trust | None
    where: str


def read_document(path: Path, claims: Mapping[str, Any] | None = None) -> Reading:
    """Read the document in a file.

    A JSON file is a document. Any other file is a proof of the kind in ``claims``; a tagged CBOR certificate of the
    Internet Computer needs no kind.

    Args:
        path: the file.
        claims: fields that replace or extend those of the document.

    Returns:
        The document.

    Raises:
        InvalidInput: the file is missing or not a document; one line names the field, the value and the allowed values.
    """
    return parse_document(read_bytes(path), str(path), claims, path.parent)


def parse_document(
    data: bytes, where: str, claims: Mapping[str, Any] | None = None, folder: Path | None = None
) -> Reading:
    """Parse a document from bytes, as ``read_document``.

    Args:
        data: the content.
        where: origin, for messages.
        claims: fields that replace or extend those of the document.
        folder: folder of binary proofs named by the document; without it, none may be named.

    Returns:
        The document.

    Raises:
        InvalidInput: ``data`` is not a document, or too long.
    """
    if len(data) > MAX_DOCUMENT_BYTES:
        raise InvalidInput(f"{where}: is longer than {MAX_DOCUMENT_BYTES} bytes, more are not read")
    given = dict(claims or {})
    if not data.strip():
        raise InvalidInput(f"{where}: is empty")
    if looks_like_json(data):
        fields = parse_object(data, where)
        document_kind = fields.get(KIND)
        if document_kind is not None and KIND in given and given[KIND] != document_kind:
            raise InvalidInput(
                f"{where}: kind: is {format_value(document_kind)}, asked for is {format_value(given[KIND])}"
            )
        if KIND not in fields:
            fields = _of_answer(fields, where)
        fields.update(given)
        _embed_proof_file(fields, where, folder)
    else:
        if len(data) > MAX_PROOF_BYTES:
            raise InvalidInput(f"{where}: has {len(data)} bytes, of a binary proof at most {MAX_PROOF_BYTES} are read")
        fields = {KIND: "ic_certificate"} if data.startswith(SELF_DESCRIBED) else {}
        fields.update(given)
        if PROOF in given or PROOF_FILE in given:
            raise InvalidInput(f"{where}: proof: is the file itself, and given a second time")
        fields[PROOF] = data
    return build_document(fields, where)


def build_document(fields: JsonObject, where: str) -> Reading:
    """Build a document from its JSON object.

    Args:
        fields: the JSON object.
        where: origin, for messages.

    Returns:
        The document.

    Raises:
        InvalidInput: it is not a document; one line names the field, the value and the allowed values.
    """
    kind = fields.get(KIND)
    if not isinstance(kind, str) or kind not in KINDS:
        binary = isinstance(fields.get(PROOF), bytes)
        advice = "it is no JSON: name it with --kind" if binary else "name it in the file or with --kind"
        found_kind = f"missing ({advice})" if kind is None else format_value(kind)
        raise InvalidInput(f"{where}: kind: {found_kind}: must be one of {', '.join(KINDS)}")
    model = KINDS[kind]
    own = None
    rest = dict(fields)
    if TRUST in rest:
        own = parse_trust_object(rest.pop(TRUST), f"{where}: trust")
    if ROOT in rest and RootTrust in model.accepts:
        # Short for a trust of kind root, as in public proofs.
        if own is not None:
            raise InvalidInput(f"{where}: root: does not go together with trust")
        own = validate_model(RootTrust, {KIND: ROOT, ROOT: rest.pop(ROOT)}, where)
    return Reading(validate_model(model, rest, where), own, where)


def parse_claim(text: str) -> tuple[str, Any]:
    """Parse ``KEY=VALUE``; the value is JSON if it looks like a list, an object or a constant.

    Raises:
        InvalidInput: the text has another form.
    """
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise InvalidInput(f"--claim {text}: write KEY=VALUE, for example now=2025-09-15T09:33:20Z")
    if value in ("null", "true", "false") or value[:1] in ("{", "[", '"'):
        return key, parse_object(f'{{"value": {value}}}'.encode(errors="replace"), f"--claim {key}").get("value")
    return key, value


def _of_answer(fields: JsonObject, where: str) -> JsonObject:
    """Convert a node's ``/commit`` or ``/abci_query`` answer to a document; keep other objects.

    Raises:
        InvalidInput: such an answer has no proof.
    """
    if "signed_header" in unwrap_rpc_result(fields):
        return {KIND: "tendermint_update", "commit": fields}
    try:
        response = find_query_response(fields)
        return fields if response is None else document_fields(response)
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}") from None


def _embed_proof_file(fields: JsonObject, document: str, folder: Path | None) -> None:
    """Replace ``proof_file`` by ``proof``, the content of the binary file that it names."""
    name = fields.pop(PROOF_FILE, None)
    if name is None:
        return
    where = f"{document}: proof_file: {format_value(name)}"
    if PROOF in fields:
        raise InvalidInput(f"{where}: does not go together with proof")
    if folder is None:
        raise InvalidInput(f"{where}: only a document in a file may name another one")
    # An untrusted document must not make us read arbitrary files.
    if not isinstance(name, str) or not name or Path(name).is_absolute() or ".." in Path(name).parts:
        raise InvalidInput(f"{where}: must be the name of a file beside the document, or in a folder there")
    fields[PROOF] = read_bytes(folder / name, MAX_PROOF_BYTES)


class Decision(StrEnum):
    """Decision on a document.

    Attributes:
        TRUE: the proof shows the claims under the given trust.
        FALSE: the proof is well formed, but shows other claims or leads to another value.
        REFUSED: undecidable: malformed, over a limit, of an unknown form, or incomplete.
        UNTRUSTED: only the document itself names the trusted value.
    """

    TRUE = "true"
    FALSE = "false"
    REFUSED = "refused"
    UNTRUSTED = "untrusted"


@dataclass(frozen=True, slots=True)
class DocumentVerdict:
    """Verdict on a document, with the paths of its proof.

    Attributes:
        found: decision under ``trust``, whoever named it.
        error: the error, or None for a true document.
        kind: kind of the document, or None if unreadable.
        claim: its claims in one line; empty if unreadable.
        trust: the trust used, or None.
        named_by_document: True if the document itself named the trust.
        accepted: True if that suffices, for a check of self-consistency.
        tracks: paths from claims to the trusted value; of a document that is not true, the computable steps.
        named_instead: trust named by the document, if it differs from ``trust``.
        lines: one line a claim, if ``claim`` only counts them.
        notes: limits of a true document, and oddities of its proof.
    """

    found: Decision
    error: CausewayError | None
    kind: str | None = None
    claim: str = ""
    trust: Trust | None = None
    named_by_document: bool = False
    accepted: bool = False
    tracks: tuple[ProofPath, ...] = ()
    named_instead: Trust | None = None
    lines: Sequence[str] = ()
    notes: tuple[str, ...] = ()

    @property
    def answer(self) -> Decision:
        """Return the decision on the document."""
        if self.named_by_document and not self.accepted and self.found is not Decision.REFUSED:
            return Decision.UNTRUSTED
        return self.found

    @property
    def valid(self) -> bool:
        """Return True if the document is true under the given trust."""
        return self.answer is Decision.TRUE

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as JSON objects; digests are hexadecimal digits."""
        return {
            "answer": self.answer.value,
            "valid": self.valid,
            "self_consistent": self.found is Decision.TRUE if self.named_by_document else None,
            "kind": self.kind,
            "claim": self.claim,
            "notes": list(self.notes),
            "error": None if self.error is None else {"name": self.error.name, "text": str(self.error)},
            "trust": None
            if self.trust is None
            else {
                "kind": self.trust.kind,
                "subject": self.trust.subject,
                "named_by_document": self.named_by_document,
                "named_instead": None if self.named_instead is None else self.named_instead.subject,
            },
            "steps": [
                {
                    "track": position,
                    "title": track.title,
                    "operation": step.operation,
                    "detail": step.detail,
                    "result": step.result.hex(),
                }
                for position, track in enumerate(self.tracks)
                for step in track.steps
            ],
        }


def verify_document(
    reading: Reading, trust: Trust | None = None, *, strict: bool = False, self_consistent: bool = False
) -> DocumentVerdict:
    """Verify a document under ``trust``.

    Args:
        reading: the document.
        trust: the trusted value. Without it the document is checked against the value that it names itself, and
            untrusted.
        strict: reject a proof with remarks, such as a duplicated node or a non-canonical encoding; default: note them,
            since deployed verifiers accept them.
        self_consistent: only check the proof against the value that the document names itself.

    Returns:
        The verdict, also if no proof could be checked against the claims or ``trust``.
    """
    document, own = reading.document, reading.embedded_trust
    trusted = trust or own
    if trusted is None:
        needed = describe_expected_trust(document.accepts)
        missing = InvalidInput(f"trust: missing; a proof of the kind {document.kind} needs {needed} (--trust)")
        return DocumentVerdict(Decision.UNTRUSTED, missing, document.kind, document.claim(), lines=document.lines())
    found = Decision.TRUE
    error: CausewayError | None = None
    tracks: tuple[ProofPath, ...] = ()
    notes: tuple[str, ...] = ()
    try:
        require_kind(trusted, document.accepts)
        tracks = document.verify(trusted)
    except ProofError as wrong:
        found, error = Decision.FALSE if isinstance(wrong, NotProven) and wrong.decides else Decision.REFUSED, wrong
        with suppress(ProofError, InvalidInput):  # the sketch of a rejected proof may fail itself
            tracks = document.sketch(trusted)
    except InvalidInput as wrong:
        found, error = Decision.REFUSED, wrong
    else:
        remarks = document.remarks(trusted)
        if strict and remarks:
            found, error = Decision.REFUSED, document.too_odd("; ".join(remarks))
        else:
            notes = (*document.notes(trusted), *remarks)
    return DocumentVerdict(
        found,
        error,
        document.kind,
        document.claim(),
        trusted,
        named_by_document=trust is None,
        accepted=self_consistent,
        tracks=tracks,
        named_instead=own if own is not None and own.target != trusted.target else None,
        lines=document.lines(),
        notes=notes,
    )


def reject_document(error: InvalidInput) -> DocumentVerdict:
    """Return the verdict on an unreadable document."""
    return DocumentVerdict(Decision.REFUSED, error)
