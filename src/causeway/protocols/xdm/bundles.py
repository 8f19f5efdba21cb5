"""Bundles: what operators of a domain put into its block, as its receipt says it (XDM reference 2.4, X-6).

Each block of a domain has one bundle, of the envelopes that were brought. An honest operator puts in what is valid. One
that puts in everything unchecked makes a bundle that is invalid as a whole, if anything in it is: nothing of it is
executed, and its messages come again in another bundle.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame
from causeway.proofs.hashing import DIGEST_BYTES
from causeway.proofs.substrate import EMPTY_ROOT
from causeway.protocols.messages import LANE_COLUMNS
from causeway.protocols.sections import hashed_rows
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.errors import Validity
from causeway.protocols.xdm.fraud_tables import BUNDLES_SCHEMA
from causeway.protocols.xdm.notices import Notice
from causeway.protocols.xdm.pool import pooled
from causeway.protocols.xdm.validate import Brought, Envelopes


class InvalidBundle(IntEnum):
    """Why a bundle is invalid, by the numbers of the wire; ``NONE``: it is valid. Those between are of transactions
    that no operator can carry here."""

    IllegalTx = 2
    InvalidXDM = 3
    NONE = 255


def judge(
    found: Envelopes, verdicts: npt.NDArray[np.int64], brought: Brought, context: Context
) -> tuple[npt.NDArray[np.int64], Frame, list[Notice]]:
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
        bad = np.flatnonzero(verdicts[at] != Validity.VALID)
        if len(bad) == 0:
            continue
        first = int(bad[0])
        why = InvalidBundle.IllegalTx if found.leaf_holds[at[first]] else InvalidBundle.InvalidXDM
        invalid[chain] = why, first
        notices.append(Notice(chain, CONSENSUS_POSITION, why.name, index=first, refused=True))
        verdicts = verdicts.copy()
        verdicts[at[verdicts[at] == Validity.VALID]] = Validity.InvalidBundle
    verdicts = pooled(found, verdicts)
    included = (verdicts == Validity.VALID) | np.isin(rows["destination"], list(invalid))
    content = rows.select([*LANE_COLUMNS, "tag"]).filter(included)
    there = np.unique(content["destination"])
    domains = there[there != CONSENSUS_POSITION]
    roots = hashed_rows(content, content["destination"], context.chains).digests
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


def inboxed(chains: list[int], bundles: Frame) -> list[list[dict[str, Any]]]:
    """Return ``inboxed_bundles`` of the receipts of domains' last blocks; one with nothing in it has the empty root."""
    columns = (bundles[name].tolist() for name in ("chain", "invalid", "extrinsic"))
    roots = [row.tobytes() for row in bundles["root"]]
    known = {chain: rest for chain, *rest in zip(*columns, roots, strict=True)}
    return [[said(*known.get(chain, (InvalidBundle.NONE, 0, EMPTY_ROOT)))] for chain in chains]


def said(invalid: int, extrinsic: int, root: bytes) -> dict[str, Any]:
    """Return one of ``inboxed_bundles`` as a value of the wire's columns."""
    valid = invalid == InvalidBundle.NONE
    return {
        "bundle": int(valid),
        "bundle_invalid": None if valid else int(invalid),
        "bundle_invalid_extrinsic": None if valid else extrinsic,
        "bundle_valid": root if valid else None,
        "extrinsics_root": root,
    }


def other(bundle: dict[str, Any]) -> dict[str, Any]:
    """Return what is false of a bundle: an invalid one is called valid, a valid one invalid for its first message."""
    invalid = InvalidBundle.InvalidXDM if bundle["bundle"] else InvalidBundle.NONE
    return said(invalid, 0, bundle["extrinsics_root"])
