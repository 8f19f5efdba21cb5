"""From a file to a document: JSON that holds all or names a binary proof, or a binary proof with separate claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from causeway.model.errors import InvalidInput
from causeway.proofs.documents.document import ProofDocument
from causeway.proofs.documents.kinds import KINDS
from causeway.proofs.documents.queries import document_fields, query_of
from causeway.proofs.documents.trust import RootTrust, Trust, trust_of
from causeway.proofs.documents.validation import (
    MAX_DOCUMENT_BYTES,
    JsonObject,
    looks_like_json,
    parse_object,
    read_bytes,
    result_of,
    shown,
    validated,
)
from causeway.proofs.ic.cbor_reader import SELF_DESCRIBED
from causeway.proofs.limits import MAX_PROOF_BYTES

PROOF, PROOF_FILE, KIND, TRUST, ROOT = "proof", "proof_file", "kind", "trust", "root"


@dataclass(frozen=True, slots=True)
class Reading:
    """A document, what it says itself that is to be trusted (None where it says nothing), and where it is from."""

    document: ProofDocument
    own_trust: Trust | None
    where: str


def read_document(path: Path, claims: Mapping[str, Any] | None = None) -> Reading:
    """Return the document in a file.

    A JSON file is a document. Any other is a proof, of the kind in ``claims``; a certificate of the Internet Computer
    with the tag that says that it is CBOR needs none.

    Args:
        path: the file.
        claims: fields to be put into the document, in place of those that it has.

    Raises:
        InvalidInput: there is no such file or it is no document; one line says the field, the value, what is allowed.
    """
    return document_in(read_bytes(path), str(path), claims, path.parent)


def document_in(
    data: bytes, where: str, claims: Mapping[str, Any] | None = None, folder: Path | None = None
) -> Reading:
    """Return the document that bytes are, as ``read_document`` does; ``where`` names them.

    ``folder``: where binary proofs named by the document lie; without it, none may be named.

    Raises:
        InvalidInput: they are no document, or longer than one may be.
    """
    if len(data) > MAX_DOCUMENT_BYTES:
        raise InvalidInput(f"{where}: is longer than {MAX_DOCUMENT_BYTES} bytes, more are not read")
    given = dict(claims or {})
    if not data.strip():
        raise InvalidInput(f"{where}: is empty")
    if looks_like_json(data):
        fields = parse_object(data, where)
        said = fields.get(KIND)
        if said is not None and KIND in given and given[KIND] != said:
            raise InvalidInput(f"{where}: kind: is {shown(said)}, asked for is {shown(given[KIND])}")
        if KIND not in fields:
            fields = _of_answer(fields, where)
        fields.update(given)
        _take_in_proof_file(fields, where, folder)
    else:
        if len(data) > MAX_PROOF_BYTES:
            raise InvalidInput(f"{where}: has {len(data)} bytes, of a binary proof at most {MAX_PROOF_BYTES} are read")
        fields = {KIND: "ic_certificate"} if data.startswith(SELF_DESCRIBED) else {}
        fields.update(given)
        if PROOF in given or PROOF_FILE in given:
            raise InvalidInput(f"{where}: proof: is the file itself, and given a second time")
        fields[PROOF] = data
    return document_of(fields, where)


def document_of(fields: JsonObject, where: str) -> Reading:
    """Return the document of its JSON object; ``where`` names it.

    Raises:
        InvalidInput: it is not a document; one line says the field, the value and what is allowed.
    """
    kind = fields.get(KIND)
    if not isinstance(kind, str) or kind not in KINDS:
        binary = isinstance(fields.get(PROOF), bytes)
        how = "it is no JSON: name it with --kind" if binary else "name it in the file or with --kind"
        said = f"missing ({how})" if kind is None else shown(kind)
        raise InvalidInput(f"{where}: kind: {said}: must be one of {', '.join(KINDS)}")
    model = KINDS[kind]
    own = None
    rest = dict(fields)
    if TRUST in rest:
        own = trust_of(rest.pop(TRUST), f"{where}: trust")
    if ROOT in rest and RootTrust in model.accepts:
        # Short for a trust of the kind root, and where public proofs have it.
        if own is not None:
            raise InvalidInput(f"{where}: root: does not go together with trust")
        own = validated(RootTrust, {KIND: ROOT, ROOT: rest.pop(ROOT)}, where)
    return Reading(validated(model, rest, where), own, where)


def claim_of(text: str) -> tuple[str, Any]:
    """Return the field and value that ``KEY=VALUE`` stands for: JSON if it looks like a list, an object or a constant.

    Raises:
        InvalidInput: it does not have that form.
    """
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise InvalidInput(f"--claim {text}: write KEY=VALUE, for example now=2025-09-15T09:33:20Z")
    if value in ("null", "true", "false") or value[:1] in ("{", "[", '"'):
        return key, parse_object(f'{{"value": {value}}}'.encode(errors="replace"), f"--claim {key}").get("value")
    return key, value


def _of_answer(fields: JsonObject, where: str) -> JsonObject:
    """Return the document that a node's answer to ``/commit`` or ``/abci_query`` is; any other object as it is.

    Raises:
        InvalidInput: it is such an answer, and has no proof.
    """
    if "signed_header" in result_of(fields):
        return {KIND: "tendermint_update", "commit": fields}
    try:
        response = query_of(fields)
        return fields if response is None else document_fields(response)
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}") from None


def _take_in_proof_file(fields: JsonObject, document: str, folder: Path | None) -> None:
    """Put the content of the binary file that ``proof_file`` names in the place of ``proof``."""
    name = fields.pop(PROOF_FILE, None)
    if name is None:
        return
    where = f"{document}: proof_file: {shown(name)}"
    if PROOF in fields:
        raise InvalidInput(f"{where}: does not go together with proof")
    if folder is None:
        raise InvalidInput(f"{where}: only a document in a file may name another one")
    # A document from somewhere else must not make us read any file there is.
    if not isinstance(name, str) or not name or Path(name).is_absolute() or ".." in Path(name).parts:
        raise InvalidInput(f"{where}: must be the name of a file beside the document, or in a folder there")
    fields[PROOF] = read_bytes(folder / name, MAX_PROOF_BYTES)
