"""Bundles of domain blocks, and the falsified receipts of bad operators.

Each block of a domain has one bundle with the delivered envelopes. An honest operator includes valid ones only. A
bundle of an operator without validation is invalid as a whole if any of its envelopes is. Nothing of it is executed,
and its messages return in another bundle.

Reference: XDM, sections 1.4 and 2.4; X-6.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.hashing import DIGEST_BYTES, HashFunction, digest_rows
from causeway_proofs.xdm import RECEIPTS

from causeway.core.frame import Frame, empty_frame
from causeway.protocols.shared.digests import digest_rows_by_chain, digests
from causeway.protocols.shared.messages import LANE_COLUMNS
from causeway.protocols.xdm.calls.prepare import deduplicate
from causeway.protocols.xdm.chains import CONSENSUS_POSITION, chain_ids
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.errors import MessageValidity
from causeway.protocols.xdm.events import ChainEvent
from causeway.protocols.xdm.tables import BUNDLES_SCHEMA
from causeway.protocols.xdm.validate import DeliveredEnvelopes, JudgedEnvelopes
from causeway.protocols.xdm.wire import U128_BYTES


class InvalidBundle(IntEnum):
    """Reason of an invalid bundle, numbered as on the wire; ``NONE`` for a valid one.

    The missing numbers concern transactions that cannot occur here.
    """

    IllegalTx = 2
    InvalidXDM = 3
    NONE = 255


def validate_bundles(
    found: JudgedEnvelopes, verdicts: npt.NDArray[np.int64], delivered: DeliveredEnvelopes, context: Context
) -> tuple[npt.NDArray[np.int64], Frame, list[ChainEvent]]:
    """Validate bundles and deduplicate envelopes.

    The first invalid message determines the reason: ``InvalidXDM`` for the proof of the mountain range, else
    ``IllegalTx``. Duplicate messages do not invalidate a bundle; the pool removes them.

    Args:
        found: Envelopes with their proved content.
        verdicts: ``MessageValidity`` of each envelope.
        delivered: Delivered envelopes.
        context: Context of the block.

    Returns:
        The verdicts after, the non-empty bundles (``BUNDLES_SCHEMA``), and events of invalid ones.
    """
    rows = found.rows
    if len(rows) == 0:
        return verdicts, empty_frame(BUNDLES_SCHEMA), []
    invalid, notices = {}, []
    for chain in delivered.unchecked:
        at = np.flatnonzero(rows["destination"] == chain)
        invalid_rows = np.flatnonzero(verdicts[at] != MessageValidity.VALID)
        if len(invalid_rows) == 0:
            continue
        first = int(invalid_rows[0])
        why = InvalidBundle.IllegalTx if found.leaf_holds[at[first]] else InvalidBundle.InvalidXDM
        invalid[chain] = why, first
        notices.append(ChainEvent(chain, CONSENSUS_POSITION, why.name, index=first, refused=True))
        verdicts = verdicts.copy()
        verdicts[at[verdicts[at] == MessageValidity.VALID]] = MessageValidity.InvalidBundle
    if context.options.pool_tag == "without_src":
        verdicts = deduplicate(found, verdicts)
    included = (verdicts == MessageValidity.VALID) | np.isin(rows["destination"], list(invalid))
    content = rows.select([*LANE_COLUMNS, "tag"]).filter(included)
    destinations = np.unique(content["destination"])
    domains = destinations[destinations != CONSENSUS_POSITION]
    roots = digest_rows_by_chain(content, content["destination"], context.chains).digests
    root_of = dict(zip(context.chains.tolist(), roots, strict=True))
    reasons = [invalid.get(chain, (InvalidBundle.NONE, 0)) for chain in domains.tolist()]
    columns: dict[str, Any] = {
        "chain": domains,
        "destination": np.full(len(domains), CONSENSUS_POSITION, dtype=np.uint32),
        "invalid": np.array([reason for reason, _ in reasons], dtype=np.uint8),
        "extrinsic": np.array([extrinsic for _, extrinsic in reasons], dtype=np.uint32),
        "root": digests([root_of[chain] for chain in domains.tolist()]),
    }
    return verdicts, Frame(columns, len(domains)).select(BUNDLES_SCHEMA.names), notices


def encode_bundle(invalid: int, extrinsic: int, root: bytes) -> dict[str, Any]:
    """Return an item of ``inboxed_bundles`` as wire columns."""
    valid = invalid == InvalidBundle.NONE
    return {
        "bundle": int(valid),
        "bundle_invalid": None if valid else int(invalid),
        "bundle_invalid_extrinsic": None if valid else extrinsic,
        "bundle_valid": root if valid else None,
        "extrinsics_root": root,
    }


def falsify_bundle(bundle: dict[str, Any]) -> dict[str, Any]:
    """Return a bundle with the opposite validity."""
    invalid = InvalidBundle.InvalidXDM if bundle["bundle"] else InvalidBundle.NONE
    return encode_bundle(invalid, 0, bundle["extrinsics_root"])


class FraudKind(IntEnum):
    """The false part of a fraud's first receipt; its successors have false storage only."""

    MESSAGE = 0
    ROOT = 1
    TRANSFERS = 2
    BUNDLE = 3


def fraudulent_receipts(columns: Mapping[str, Any], rows: Mapping[int, Mapping[str, Any]]) -> dict[int, bytes]:
    """Encode false receipts, by row.

    Args:
        columns: Columns of the honest receipts (``RECEIPTS``).
        rows: Claim about the block of each row with a fraud.
    """
    at = pa.array(sorted(rows))
    claims = [rows[row] for row in sorted(rows)]
    false_columns = {name: column.take(at) for name, column in columns.items()}
    schema = RECEIPTS.schema
    roots = [claim["root"] for claim in claims]
    false_columns["final_state_root"] = pa.array(roots, schema.field("final_state_root").type)
    false_columns["execution_trace"] = pa.array([[root] for root in roots], schema.field("execution_trace").type)
    traced = np.frombuffer(b"".join(roots), dtype=np.uint8).reshape(-1, DIGEST_BYTES)
    digests = digest_rows(HashFunction.BLAKE2B_256, np.ascontiguousarray(traced))
    false_columns["execution_trace_root"] = pa.array(
        [row.tobytes() for row in digests], schema.field("execution_trace_root").type
    )
    out = [
        _add_transfer(honest, claim) if _begins(claim, FraudKind.TRANSFERS) else honest
        for honest, claim in zip(false_columns["transfers_out"].to_pylist(), claims, strict=True)
    ]
    false_columns["transfers_out"] = pa.array(out, schema.field("transfers_out").type)
    bundles = [
        [*honest[:-1], falsify_bundle(honest[-1])] if _begins(claim, FraudKind.BUNDLE) else honest
        for honest, claim in zip(false_columns["inboxed_bundles"].to_pylist(), claims, strict=True)
    ]
    false_columns["inboxed_bundles"] = pa.array(bundles, schema.field("inboxed_bundles").type)
    return dict(zip(sorted(rows), RECEIPTS.encode(false_columns).to_pylist(), strict=True))


def _begins(claim: Mapping[str, Any], kind: FraudKind) -> bool:
    return bool(claim["what"] == kind and claim["origin"] == claim["number"])


def _add_transfer(transfers: list[dict[str, Any]], claim: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the transfers of a block with a forged one."""
    foreign = chain_ids(np.array([claim["foreign"]], dtype=np.uint32))[0].as_py()
    amounts = {item["chain_id"]: int.from_bytes(item["amount"], "little") for item in transfers}
    amounts[foreign] = amounts.get(foreign, 0) + claim["amount"]
    order = sorted(amounts, key=lambda chain: -1 if chain is None else chain)
    return [{"chain_id": chain, "amount": amounts[chain].to_bytes(U128_BYTES, "little")} for chain in order]
