"""Bundles: what operators of a domain put into its block, as its receipt says it (XDM reference 2.4, X-6).

Each block of a domain has one bundle, of the envelopes that were brought. An honest operator puts in what is valid. One
that puts in everything unchecked makes a bundle that is invalid as a whole, if anything in it is: nothing of it is
executed, and its messages come again in another bundle.

What bad operators' receipts say instead of what honest ones do (XDM reference 1.4, X-6).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.hashing import DIGEST_BYTES, HashFunction, digest_rows
from causeway_proofs.substrate import EMPTY_ROOT
from causeway_proofs.xdm import RECEIPTS

from causeway.core.frame import Frame
from causeway.protocols.shared.digests import digest_rows_by_chain
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
    """Why a bundle is invalid, by the numbers of the wire; ``NONE``: it is valid. Those between are of transactions
    that no operator can carry here."""

    IllegalTx = 2
    InvalidXDM = 3
    NONE = 255


def validate_bundles(
    found: JudgedEnvelopes, verdicts: npt.NDArray[np.int64], brought: DeliveredEnvelopes, context: Context
) -> tuple[npt.NDArray[np.int64], Frame, list[ChainEvent]]:
    """Return the verdicts on envelopes after those on their bundles and in the pool, the bundles of domains that have
    anything in them (``BUNDLES_SCHEMA``), and what is to be said of those that are invalid.

    ``verdicts``: on each envelope by itself. The first message that is not valid says why a bundle is invalid:
    ``InvalidXDM`` for the proof of the mountain range, else ``IllegalTx``. That another message has the same identity
    makes none invalid: of those that are executed the pool has one.
    """
    rows = found.rows
    if len(rows) == 0:
        return verdicts, _table([]), []
    invalid, notices = {}, []
    for chain in brought.unchecked.tolist():
        at = np.flatnonzero(rows["destination"] == chain)
        bad = np.flatnonzero(verdicts[at] != MessageValidity.VALID)
        if len(bad) == 0:
            continue
        first = int(bad[0])
        why = InvalidBundle.IllegalTx if found.leaf_holds[at[first]] else InvalidBundle.InvalidXDM
        invalid[chain] = why, first
        notices.append(ChainEvent(chain, CONSENSUS_POSITION, why.name, index=first, refused=True))
        verdicts = verdicts.copy()
        verdicts[at[verdicts[at] == MessageValidity.VALID]] = MessageValidity.InvalidBundle
    verdicts = deduplicate(found, verdicts)
    included = (verdicts == MessageValidity.VALID) | np.isin(rows["destination"], list(invalid))
    content = rows.select([*LANE_COLUMNS, "tag"]).filter(included)
    there = np.unique(content["destination"])
    domains = there[there != CONSENSUS_POSITION]
    roots = digest_rows_by_chain(content, content["destination"], context.chains).digests
    of_chain = dict(zip(context.chains.tolist(), roots, strict=True))
    none = (InvalidBundle.NONE, 0)
    return (
        verdicts,
        _table([(chain, *invalid.get(chain, none), of_chain[chain]) for chain in domains.tolist()]),
        notices,
    )


def _table(rows: list[tuple[int, InvalidBundle, int, bytes]]) -> Frame:
    columns: dict[str, Any] = {
        "chain": np.array([chain for chain, *_ in rows], dtype=np.uint32),
        "destination": np.full(len(rows), CONSENSUS_POSITION, dtype=np.uint32),
        "invalid": np.array([invalid for _, invalid, _, _ in rows], dtype=np.uint8),
        "extrinsic": np.array([extrinsic for _, _, extrinsic, _ in rows], dtype=np.uint32),
        "root": np.frombuffer(b"".join(root for _, _, _, root in rows), dtype=np.uint8).reshape(-1, DIGEST_BYTES),
    }
    return Frame({name: columns[name] for name in BUNDLES_SCHEMA.names}, len(rows))


def inboxed_bundles(chains: list[int], bundles: Frame) -> list[list[dict[str, Any]]]:
    """Return ``inboxed_bundles`` of the receipts of domains' last blocks; one with nothing in it has the empty root."""
    columns = (bundles[name].tolist() for name in ("chain", "invalid", "extrinsic"))
    roots = [row.tobytes() for row in bundles["root"]]
    known = {chain: rest for chain, *rest in zip(*columns, roots, strict=True)}
    return [[encode_bundle(*known.get(chain, (InvalidBundle.NONE, 0, EMPTY_ROOT)))] for chain in chains]


def encode_bundle(invalid: int, extrinsic: int, root: bytes) -> dict[str, Any]:
    """Return one of ``inboxed_bundles`` as a value of the wire's columns."""
    valid = invalid == InvalidBundle.NONE
    return {
        "bundle": int(valid),
        "bundle_invalid": None if valid else int(invalid),
        "bundle_invalid_extrinsic": None if valid else extrinsic,
        "bundle_valid": root if valid else None,
        "extrinsics_root": root,
    }


def falsify_bundle(bundle: dict[str, Any]) -> dict[str, Any]:
    """Return what is false of a bundle: an invalid one is called valid, a valid one invalid for its first message."""
    invalid = InvalidBundle.InvalidXDM if bundle["bundle"] else InvalidBundle.NONE
    return encode_bundle(invalid, 0, bundle["extrinsics_root"])


class FraudKind(IntEnum):
    """What is false in the first receipt of a fraud; in those built on it the storage is."""

    MESSAGE = 0
    ROOT = 1
    TRANSFERS = 2
    BUNDLE = 3


def fraudulent_receipts(columns: Mapping[str, Any], rows: Mapping[int, Mapping[str, Any]]) -> dict[int, bytes]:
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
        _more(given, claim) if _begins(claim, FraudKind.TRANSFERS) else given
        for given, claim in zip(said["transfers_out"].to_pylist(), claims, strict=True)
    ]
    said["transfers_out"] = pa.array(out, schema.field("transfers_out").type)
    bundles = [
        [*given[:-1], falsify_bundle(given[-1])] if _begins(claim, FraudKind.BUNDLE) else given
        for given, claim in zip(said["inboxed_bundles"].to_pylist(), claims, strict=True)
    ]
    said["inboxed_bundles"] = pa.array(bundles, schema.field("inboxed_bundles").type)
    return dict(zip(sorted(rows), RECEIPTS.encode(said).to_pylist(), strict=True))


def _begins(claim: Mapping[str, Any], lie: FraudKind) -> bool:
    return bool(claim["what"] == lie and claim["origin"] == claim["number"])


def _more(given: list[dict[str, Any]], claim: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return transfers of a block with the one that never was."""
    foreign = chain_ids(np.array([claim["foreign"]], dtype=np.uint32))[0].as_py()
    amounts = {item["chain_id"]: int.from_bytes(item["amount"], "little") for item in given}
    amounts[foreign] = amounts.get(foreign, 0) + claim["amount"]
    order = sorted(amounts, key=lambda chain: -1 if chain is None else chain)
    return [{"chain_id": chain, "amount": amounts[chain].to_bytes(U128_BYTES, "little")} for chain in order]
