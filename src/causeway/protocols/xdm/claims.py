"""What bad operators' receipts say instead of what honest ones do (XDM reference 1.4, X-6)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.proofs.hashing import DIGEST_BYTES, HashFunction, digest_rows
from causeway.proofs.xdm import RECEIPTS
from causeway.protocols.xdm.bundles import other
from causeway.protocols.xdm.chains import chain_ids
from causeway.protocols.xdm.wire import U128_BYTES


class Lie(IntEnum):
    """What is false in the first receipt of a fraud; in those built on it the storage is."""

    MESSAGE = 0
    ROOT = 1
    TRANSFERS = 2
    BUNDLE = 3


def claimed(columns: Mapping[str, Any], rows: Mapping[int, Mapping[str, Any]]) -> dict[int, bytes]:
    """Return the receipts that are submitted instead of the honest ones, by row.

    Args:
        columns: what the honest receipts say (``RECEIPTS``).
        rows: the claim about the block of each row that has one.
    """
    if not rows:
        return {}
    at = pa.array(sorted(rows))
    claims = [rows[row] for row in sorted(rows)]
    said = {name: column.take(at) for name, column in columns.items()}
    schema = RECEIPTS.schema
    roots = [claim["root"] for claim in claims]
    said["final_state_root"] = pa.array(roots, schema.field("final_state_root").type)
    said["execution_trace"] = pa.array([[root] for root in roots], schema.field("execution_trace").type)
    traced = np.frombuffer(b"".join(roots), dtype=np.uint8).reshape(-1, DIGEST_BYTES)
    digests = digest_rows(HashFunction.BLAKE2B_256, np.ascontiguousarray(traced))
    said["execution_trace_root"] = pa.array(
        [row.tobytes() for row in digests], schema.field("execution_trace_root").type
    )
    out = [
        _more(given, claim) if _begins(claim, Lie.TRANSFERS) else given
        for given, claim in zip(said["transfers_out"].to_pylist(), claims, strict=True)
    ]
    said["transfers_out"] = pa.array(out, schema.field("transfers_out").type)
    bundles = [
        [*given[:-1], other(given[-1])] if _begins(claim, Lie.BUNDLE) else given
        for given, claim in zip(said["inboxed_bundles"].to_pylist(), claims, strict=True)
    ]
    said["inboxed_bundles"] = pa.array(bundles, schema.field("inboxed_bundles").type)
    return dict(zip(sorted(rows), RECEIPTS.encode(said).to_pylist(), strict=True))


def _begins(claim: Mapping[str, Any], lie: Lie) -> bool:
    return bool(claim["what"] == lie and claim["origin"] == claim["number"])


def _more(given: list[dict[str, Any]], claim: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return transfers of a block with the one that never was."""
    foreign = chain_ids(np.array([claim["foreign"]], dtype=np.uint32))[0].as_py()
    amounts = {item["chain_id"]: int.from_bytes(item["amount"], "little") for item in given}
    amounts[foreign] = amounts.get(foreign, 0) + claim["amount"]
    order = sorted(amounts, key=lambda chain: -1 if chain is None else chain)
    return [{"chain_id": chain, "amount": amounts[chain].to_bytes(U128_BYTES, "little")} for chain in order]
