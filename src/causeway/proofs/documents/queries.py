"""A node's answer to ``abci_query`` with ``prove``: the proof of a key through the stores of a chain, as it stands."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from causeway.model.errors import InvalidInput
from causeway.proofs.documents.validation import JsonObject, result_of, shown
from causeway.proofs.limits import MAX_DEPTH

SPECS: Mapping[str, str] = {"ics23:iavl": "iavl", "ics23:simple": "tendermint", "ics23:smt": "smt"}
"""The spec of each type of operation that a node of the Cosmos SDK writes."""


def query_of(fields: JsonObject) -> JsonObject | None:
    """Return ``response`` where a JSON object is an answer to ``abci_query``, with or without what is around it.

    Raises:
        InvalidInput: the answer is an error of JSON-RPC.
    """
    refusal = fields.get("error")
    if isinstance(refusal, dict) and "message" in refusal:
        said = [refusal["message"], *([refusal["data"]] if "data" in refusal else ())]
        raise InvalidInput(f"error: the node answered {': '.join(map(shown, said))}")
    result = result_of(fields)
    if "proofOps" in result or "proof_ops" in result:
        return result
    found = result.get("response")
    return found if isinstance(found, dict) else None


def document_fields(response: JsonObject) -> JsonObject:
    """Return the fields of the document of the kind ``ics23_chained`` that an answer is: what it says is the claim.

    Raises:
        InvalidInput: the node refused the query, or gave no proof; or a field is of another form.
    """
    code = response.get("code")
    if code is not None and (isinstance(code, bool) or code != 0):
        raise InvalidInput(f"response: the node refused the query: code {shown(code)}, {shown(response.get('log'))}")
    proof = response.get("proofOps", response.get("proof_ops"))
    operations = proof.get("ops") if isinstance(proof, dict) else None
    if not isinstance(operations, list) or not 0 < len(operations) <= MAX_DEPTH:
        raise InvalidInput(f"response: proofOps: must have 1 to {MAX_DEPTH} ops: ask the node with prove=true")
    specs, keys, proofs = [], [], []
    for number, operation in enumerate(operations):
        where = f"response: proofOps: ops[{number}]"
        kind = operation.get("type") if isinstance(operation, dict) else None
        if not isinstance(kind, str) or kind not in SPECS:
            raise InvalidInput(f"{where}: type: {shown(kind)}: must be one of {', '.join(SPECS)}")
        specs.append(SPECS[kind])
        keys.append(_bytes(operation, "key", where))
        proofs.append(_bytes(operation, "data", where))
    asked = _bytes(response, "key", "response")
    if asked != keys[0]:
        raise InvalidInput(f"response: key: is 0x{asked.hex()}, its proof is of 0x{keys[0].hex()}")
    return {
        "kind": "ics23_chained",
        "specs": specs,
        "path": [f"0x{key.hex()}" for key in reversed(keys)],
        "value": _bytes(response, "value", "response"),
        "proof": proofs,
        "state_height": response.get("height"),
    }


def _bytes(value: JsonObject, name: str, where: str) -> bytes:
    """Return bytes in base64; none for null. Raises ``InvalidInput``."""
    text: Any = value.get(name)
    try:
        return b"" if text is None else base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise InvalidInput(f"{where}: {name}: {shown(text)}: is not base64") from None
