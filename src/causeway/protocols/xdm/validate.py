"""``validate``: check the proofs of envelopes.

One table of checks, in the reference's order, covers all envelopes of a block at once. Shared parts are verified once:
the leaf of a consensus block, the receipt of a domain, each node of a storage proof. The message itself is the value in
the proved state. The envelope only names its lane and nonce, which must match.

Reference: XDM, section 3.4, steps 1 to 9, and section 3.5.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.hashing import DIGEST_BYTES, HashFunction, digest_values
from causeway_proofs.mmr.columns import LeafProofs, verify_leaf_proofs
from causeway_proofs.substrate import StorageProofs, read_values
from causeway_proofs.work import count_proof_bytes
from causeway_proofs.xdm import LEAVES, RECEIPTS, receipt_storage_key

from causeway.core.frame import Frame
from causeway.core.joins import lookup_rows
from causeway.protocols.shared.checks import first_codes
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.errors import MessageValidity
from causeway.protocols.xdm.state import (
    MAX_CHANNEL,
    ChannelState,
    RequestKind,
    channel_rows,
    channel_states,
    is_response,
    lane_channels,
    next_nonces,
)
from causeway.protocols.xdm.tables import BASE, CHANNEL
from causeway.protocols.xdm.transactions import decode_lists
from causeway.protocols.xdm.wire import DecodedBodies, decode_bodies, message_keys

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class DeliveredEnvelopes:
    """Envelopes delivered to chains, as tables.

    Attributes:
        envelopes: ``ENVELOPES_SCHEMA`` with ``base``.
        nodes: ``NODES_SCHEMA`` with ``base``, ascending by chains, ``base`` and ``number``.
        bases: ``BASES_SCHEMA`` with ``base``, ascending by chains and ``base``.
        unchecked: Chains whose operator includes all envelopes without validation (X-6).
    """

    envelopes: Frame
    nodes: Frame
    bases: Frame
    unchecked: tuple[int, ...] = field(default=(), kw_only=True)


def proved_roots(
    bases: Frame, blocks: Frame, context: Context
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8], Mask, Mask]:
    """Verify bases and return the state roots that they prove.

    Args:
        bases: ``BASES_SCHEMA``.
        blocks: Blocks of the consensus chain known to the destinations.
        context: Context of the block.

    Returns:
        State roots and those of the leaves, uint8, shape (n, 32); a mask of valid leaves (step 1); a mask of fully
        valid bases (step 6).
    """
    count = len(bases)
    roots, holds = np.zeros((count, DIGEST_BYTES), dtype=np.uint8), np.zeros(count, dtype=bool)
    if count == 0 or len(blocks) == 0:
        return roots, roots, holds, holds
    best = int(blocks["number"][-1])
    named = lookup_rows(blocks, Frame({"number": bases["block"]}, count), ["number"])
    known = named >= 0
    depth = np.where(bases["destination"] == CONSENSUS_POSITION, 0, context.options.archiving_depth)
    age = best - bases["block"].astype(np.int64)
    holds = known & (age >= depth) & (age < context.options.mmr_roots)
    holds &= (blocks["hash"][named] == bases["block_hash"]).all(axis=1)
    holds &= pa.compute.binary_length(bases["items"]).to_numpy(zero_copy_only=False) % DIGEST_BYTES == 0
    large = bases["items"].cast(pa.large_binary())
    values = [
        [value[at : at + DIGEST_BYTES] for at in range(0, len(value) - 31, DIGEST_BYTES)] for value in large.to_pylist()
    ]
    proofs = LeafProofs.from_lists(
        bases["leaf_index"], bases["leaf_count"], pa.array(values, pa.large_list(pa.binary(DIGEST_BYTES)))
    )
    leaves = bases["leaf"].cast(pa.large_binary())
    verdicts = verify_leaf_proofs(
        proofs,
        digest_values(HashFunction.KECCAK_256, leaves),
        np.ascontiguousarray(blocks["mmr_root"][named]),
        blocks["leaf_count"][named],
    )
    holds &= verdicts.codes == 0
    decoded = LEAVES.decode(leaves)
    holds &= decoded.verdicts.codes == 0
    roots = _digests(decoded.columns["state_root"])
    leaf_roots = roots.copy()
    of_leaf = holds.copy()
    # Only an envelope from a domain has a receipt proof. The deployed protocol also accepts one without it and reads
    # the message under the consensus chain's own root.
    bare = bases["domain_proof"].cast(pa.large_binary())
    with_receipt = pa.compute.binary_length(bare).to_numpy(zero_copy_only=False) > 0
    from_domain = bases["source"] != CONSENSUS_POSITION
    holds &= (with_receipt == from_domain) | (from_domain & (context.options.strict_envelope == "off"))
    of_domain = np.flatnonzero(with_receipt & from_domain)
    if len(of_domain):
        keys = [receipt_storage_key(int(chain) - 1) for chain in bases["source"][of_domain]]
        lists, listed = decode_lists(bare.take(pa.array(of_domain)))
        reads = read_values(StorageProofs.of(np.ascontiguousarray(roots[of_domain]), lists), keys, strict=True)
        receipts = RECEIPTS.decode(reads.reads.values().fill_null(b""))
        good = listed & (reads.codes == 0) & (receipts.verdicts.codes == 0)
        holds[of_domain] &= good
        roots[of_domain] = _digests(receipts.columns["final_state_root"])
    return roots, leaf_roots, of_leaf, holds


def _digests(column: pa.FixedSizeBinaryArray) -> npt.NDArray[np.uint8]:
    filled = column.fill_null(bytes(DIGEST_BYTES))
    data = np.frombuffer(filled.buffers()[1], dtype=np.uint8)
    start = filled.offset * DIGEST_BYTES
    return data[start : start + len(filled) * DIGEST_BYTES].reshape(len(filled), DIGEST_BYTES).copy()


@dataclass(frozen=True)
class JudgedEnvelopes:
    """Envelopes with the inputs of their checks, row by row.

    ``roots`` are the state roots of the proofs, shape (n, 32), and ``leaf_roots`` those of the bases' leaves.
    A malformed leaf has zeros.
    """

    rows: Frame
    is_response: Mask
    roots: npt.NDArray[np.uint8]
    leaf_roots: npt.NDArray[np.uint8]
    leaf_holds: Mask
    base_holds: Mask
    proved: Mask
    bodies: DecodedBodies
    raw: pa.LargeBinaryArray
    channels: Frame
    next_channels: Frame
    context: Context


def kind_is_due(kinds: npt.NDArray[np.uint8], state: npt.NDArray[np.int64]) -> Mask:
    """Return a mask of requests admissible in a channel state (-1: no channel): step 8."""
    opening = (kinds == RequestKind.CHANNEL_OPEN) & (state == -1)
    closing = (kinds == RequestKind.CHANNEL_CLOSE) & ((state == ChannelState.INITIATED) | (state == ChannelState.OPEN))
    of_endpoint = (kinds == RequestKind.ENDPOINT) & ((state == ChannelState.OPEN) | (state == ChannelState.CLOSED))
    return np.asarray(opening | closing | of_endpoint)


def read_envelopes(
    delivered: DeliveredEnvelopes,
    blocks: Frame,
    declared_under: Frame,
    channels: Frame,
    next_channels: Frame,
    context: Context,
) -> JudgedEnvelopes:
    """Read the proofs of envelopes and the channels for their checks.

    Args:
        delivered: Delivered envelopes.
        blocks: Blocks of the consensus chain known to the destinations.
        declared_under: Blocks with known declared value (``DECLARED_UNDER_SCHEMA``).
        channels: ``CHANNELS_SCHEMA``.
        next_channels: Next channel numbers.
        context: Context of the block.
    """
    rows, bases = delivered.envelopes, delivered.bases
    roots, leaf_roots, of_leaf, whole_base = proved_roots(bases, blocks, context)
    # A following lake accepts value from other lakes' domains only up to the block of its known declared value.
    limited = (bases["source"] != CONSENSUS_POSITION) & np.isin(bases["source"], context.network.external)
    if not context.network.follows or not limited.any():
        is_covered = np.ones(len(bases), dtype=bool)
    else:
        known = lookup_rows(declared_under, Frame({"domain": bases["destination"]}, len(bases)), ["domain"])
        until = np.where(known >= 0, declared_under["number"][known] if len(declared_under) else 0, 0)
        leaves = LEAVES.decode(bases["leaf"].cast(pa.large_binary())).columns["block_number"]
        block = leaves.fill_null(0).to_numpy(zero_copy_only=False)
        is_covered = np.asarray(~limited | ((known >= 0) & (block <= until)))
    whole_base = whole_base & is_covered
    base = lookup_rows(bases, rows, BASE)
    leaf_holds, base_holds = (
        np.asarray(np.where(base >= 0, holds[base] if len(bases) else False, False)) for holds in (of_leaf, whole_base)
    )
    for name in ("leaf", "items", "domain_proof"):
        # On the wire each envelope carries its own copy of the common part.
        lengths = pa.compute.binary_length(bases[name]).to_numpy(zero_copy_only=False)
        count_proof_bytes(int(lengths[base[base >= 0]].sum()))
    # Collect the storage proof of each envelope; a missing node invalidates it.
    members = rows["members"].cast(pa.large_binary())
    lengths = pa.compute.binary_length(members).to_numpy(zero_copy_only=False)
    data = np.frombuffer(members.buffers()[2] or b"", dtype=np.uint8)
    offsets = np.frombuffer(members.buffers()[1], dtype=np.int64)[members.offset : members.offset + len(members) + 1]
    data = data[offsets[0] : offsets[-1]]
    whole = lengths % 4 == 0
    counts = lengths // 4
    if not whole.all():
        data = np.concatenate(
            [data[start : start + 4 * n] for start, n in zip(offsets - offsets[0], counts, strict=False)]
        )
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    numbers = np.ascontiguousarray(data).view("<u4")
    owner = np.repeat(np.arange(len(rows)), counts)
    keys = Frame({name: rows[name][owner] for name in BASE} | {"number": numbers}, len(numbers))
    found = lookup_rows(delivered.nodes, keys, (*BASE, "number"))
    missing = found < 0
    if missing.any():
        np.logical_and.at(whole, owner[missing], False)
        found = np.where(missing, 0, found)
    of_row = roots[base] if len(roots) else np.zeros((len(rows), DIGEST_BYTES), dtype=np.uint8)
    column = (
        delivered.nodes["node"].cast(pa.large_binary()) if len(delivered.nodes) else pa.array([b""], pa.large_binary())
    )
    lengths = pa.compute.binary_length(column).to_numpy(zero_copy_only=False)
    count_proof_bytes(int(lengths[found[~missing]].sum()))
    root_ends = np.arange(len(of_row) + 1, dtype=np.int64) * DIGEST_BYTES
    content = np.ascontiguousarray(of_row)
    roots_column = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(of_row), [None, pa.py_buffer(root_ends), pa.py_buffer(content)]
    )
    proofs = StorageProofs(roots_column, column, found, ends, np.full(len(rows), -1, dtype=np.int8))
    verdicts = read_values(proofs, message_keys(rows), strict=True)
    raw = verdicts.reads.values()
    proved = np.asarray((verdicts.codes == 0) & base_holds & whole)
    bodies = decode_bodies(raw.fill_null(b""))
    under = roots[base] if len(bases) else np.zeros((len(rows), DIGEST_BYTES), dtype=np.uint8)
    validity = leaf_holds, base_holds, proved
    responses = is_response(rows["substream"])
    return JudgedEnvelopes(rows, responses, under, leaf_roots, *validity, bodies, raw, channels, next_channels, context)


def validate(found: JudgedEnvelopes) -> npt.NDArray[np.int64]:
    """Return the first refusal of each envelope (``MessageValidity``), ``VALID`` for none.

    The checks do not depend on earlier messages. With stored early messages, the kind of a request is checked in its
    turn (D-3).

    Args:
        found: Envelopes with their proved content.
    """
    rows, bodies, channels, following = found.rows, found.bodies, found.channels, found.next_channels
    options, responses, numbers = found.context.options, found.is_response, lane_channels(rows["substream"])
    ends = {"chain": rows["destination"], "foreign": rows["source"]}
    channel = channel_rows(channels, rows["destination"], rows["source"], numbers)
    next_row = lookup_rows(following, Frame(ends, len(rows)), CHANNEL[:2])
    limit = np.where(next_row >= 0, following["next_channel"][next_row] if len(following) else 0, 0)
    expected = next_nonces(channels, channel, responses)
    same = (bodies.source == rows["source"]) & (bodies.destination == rows["destination"]) & ~bodies.beyond
    same &= (bodies.channel == numbers) & (bodies.nonce == rows["index"]) & (bodies.channel <= np.uint64(MAX_CHANNEL))
    early = rows["index"] != expected
    judged = ~responses & ~(early & (options.inbox == "stored"))
    due = kind_is_due(bodies.asked, channel_states(channels, channel))
    checks = (
        (MessageValidity.BadProof, found.leaf_holds),  # 3.4, 1
        (MessageValidity.InvalidCall, ~responses | (channel >= 0)),  # 3.5
        (MessageValidity.INVALID_CHANNEL, responses | (numbers <= limit.astype(np.uint64))),  # 3.4, 4
        (MessageValidity.INVALID_NONCE, rows["index"] >= expected),  # 3.4, 5
        (MessageValidity.BadProof, found.base_holds & found.proved & ~bodies.malformed),  # 3.4, 6 and 7
        (MessageValidity.BadProof, same),  # 3.4, 7; D-7
        (MessageValidity.InvalidCall, bodies.response == responses),  # 3.4, 8
        (MessageValidity.InvalidCall, ~judged | due),  # 3.4, 8
        # An earlier check refuses nonces below the expected one.
        (MessageValidity.IN_FUTURE_NONCE, rows["index"] - expected <= np.uint64(options.max_future_nonces)),  # 3.4, 9
    )
    return first_codes(checks, len(rows), MessageValidity.VALID)
