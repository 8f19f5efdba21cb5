"""The consensus chain: receipts of domains, their confirmation, blocks and mountain range.

The history maps blocks of a chain to heights of the lake (``HISTORY_SCHEMA``).

Reference: XDM, section 2.4; X-3, X-4.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.hashing import DIGEST_BYTES, HashFunction, digest_rows, digest_values
from causeway_proofs.mmr.peaks import RangeState, RangeWindow
from causeway_proofs.substrate import EMPTY_ROOT, numbers_column, to_limbs
from causeway_proofs.xdm import LEAVES, RECEIPTS

from causeway.core.frame import Frame, empty_frame
from causeway.core.joins import merge_ranges
from causeway.protocols.contract import BYTES, UINT32, UINT64, View, table_schema
from causeway.protocols.shared.digests import digests, fixed_column, list_digests
from causeway.protocols.shared.state_tables import blank_rows
from causeway.protocols.xdm.chains import CONSENSUS_POSITION, chain_ids, positions_of_ids
from causeway.protocols.xdm.consensus.bundles import InvalidBundle, encode_bundle, fraudulent_receipts
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.events import OPERATOR_SLASHED, ChainEvent
from causeway.protocols.xdm.operators import Operators
from causeway.protocols.xdm.options import XdmOptions
from causeway.protocols.xdm.state import State, encode_set, replace_domain_rows, table_from_rows
from causeway.protocols.xdm.tables import CONFIRMED_SCHEMA, RANGE_SCHEMA, RECEIPTED_SCHEMA, UNBOOKED_SCHEMA
from causeway.protocols.xdm.value.books import BookError, Books, DeclaredValue, TransferRecord
from causeway.protocols.xdm.wire import U128_BYTES


def is_recorded(state: State, chain: int, number: int) -> bool:
    """Return True if the history has a chain's block."""
    _, numbers = _numbers(state, chain)
    row = int(np.searchsorted(numbers, number))
    return row < len(numbers) and int(numbers[row]) == number


def height_of(state: State, chain: int, number: int) -> int:
    """Return the height of a chain's block."""
    first, numbers = _numbers(state, chain)
    assert is_recorded(state, chain, number), f"chain {chain}, block {number}: not remembered"
    return int(state["history"]["height"][first + int(np.searchsorted(numbers, number))])


def _numbers(state: State, chain: int) -> tuple[int, np.ndarray]:
    history = state["history"]
    first, end = np.searchsorted(history["chain"], (chain, chain + 1))
    return int(first), history["number"][first:end]


def spans_between(state: State, chain: int, after: int, last: int, *, forks: bool) -> list[tuple[int, int, int]]:
    """Return the heights of a chain's blocks in a range, as (chain, first, last).

    The range is from after block ``after`` to block ``last``. With ``forks`` it may contain abandoned heights, else it
    is contiguous.
    """
    since, until = height_of(state, chain, after) + 1, height_of(state, chain, last)
    if not forks:
        return [(chain, since, until)]
    history = state["history"]
    own = history["height"][history["chain"] == chain]
    return [(chain, *run) for run in height_runs(own[(own >= since) & (own <= until)])]


def height_runs(heights: npt.NDArray[np.uint64]) -> list[tuple[int, int]]:
    """Return ascending heights as contiguous ranges (first, last)."""
    _, first, end = merge_ranges(heights)
    return list(zip(first.tolist(), (end - np.uint64(1)).tolist(), strict=True))


def heights_frame(spans: Sequence[tuple[int, int, int]]) -> Frame:
    """Return (chain, first, last) ranges as ``HEIGHTS_SCHEMA``."""
    columns = np.array(spans, dtype=np.int64).reshape(-1, 3)
    frame = {"chain": columns[:, 0].astype(np.uint32), "first": columns[:, 1].astype(np.uint64)}
    return Frame({**frame, "last": columns[:, 2].astype(np.uint64)}, len(spans))


TAKEN_SCHEMA = table_schema(chain=UINT32, domain=UINT32, number=UINT64, receipt=BYTES, executed=BYTES, operators=BYTES)
"""One row a receipt accepted by the consensus chain, of block ``number`` of ``domain``.

``executed`` is the honest receipt in place of a false one; the consensus chain learns it from the fraud proof.
``operators`` submitted the receipt, or the honest one (``encode_set``). It is empty for domains of other lakes, whose
receipts have a single signer.
"""

_LISTS = ("transfers_in", "transfers_out", "rejected_transfers_claimed", "transfers_rejected")
"""Transfer lists of a receipt, by ``TransferRecord``."""


@dataclass(frozen=True)
class ConsensusRanges:
    """The recent blocks of the consensus chain, with the mountain range of their leaves."""

    blocks: Frame
    window: RangeWindow
    leaves: pa.LargeBinaryArray

    @classmethod
    def of(cls, state: State) -> ConsensusRanges:
        """Create the ranges of a state with the consensus chain.

        Args:
            state: State with ``blocks`` and ``range``.
        """
        blocks = state["blocks"]
        columns = {
            "block_number": pa.array(blocks["number"].astype(np.uint32)),
            "block_hash": fixed_column(blocks["hash"]),
            **{name: fixed_column(blocks[name]) for name in ("state_root", "extrinsics_root")},
        }
        leaves = LEAVES.encode(columns)
        start = RangeState.decode(state["range"]["range"][0].as_py())
        return cls(blocks, RangeWindow(start, digest_values(HashFunction.KECCAK_256, leaves)), leaves)


def receipts(
    view: View, state: State, claims: Mapping[int, Mapping[str, Any]], operators: Operators
) -> tuple[Frame, Frame]:
    """Create the missing receipts of domains' blocks.

    A domain makes no block without the consensus chain, so at most its last block lacks a receipt.

    Args:
        view: Tables that chains published at the previous height.
        state: State of the consensus chain.
        claims: By domain, the claims of bad operators.
        operators: Operators of the chains.

    Returns:
        The receipts (``TAKEN_SCHEMA``), and the last accepted receipt of each domain (``RECEIPTED_SCHEMA``).
    """
    tips, known = view.tables["tips"], state["receipted"]
    taken_to = dict(zip(known["domain"].tolist(), known["number"].tolist(), strict=True))
    rows = zip(tips["chain"].tolist(), tips["number"].tolist(), strict=True)
    fresh = [chain != CONSENSUS_POSITION and number > taken_to.get(chain, -1) for chain, number in rows]
    tips = tips.filter(np.array(fresh, dtype=bool))
    count = len(tips)
    if count == 0:
        return empty_frame(TAKEN_SCHEMA), known
    parents = dict(zip(known["domain"].tolist(), list_digests(known["hash"]), strict=True))
    parent = [parents.get(chain, bytes(DIGEST_BYTES)) for chain in tips["chain"].tolist()]
    zero = numbers_column(np.zeros(count, dtype=np.uint64), U128_BYTES)
    roots = fixed_column(tips["root"])
    domains = tips["chain"].tolist()
    # An empty bundle has the empty root.
    included = view.tables["bundles"]
    known_bundles = zip(*(included[name].tolist() for name in ("chain", "invalid", "extrinsic")), strict=True)
    bundles = {
        chain: (*row, root.tobytes()) for (chain, *row), root in zip(known_bundles, included["root"], strict=True)
    }
    inboxed = [[encode_bundle(*bundles.get(chain, (InvalidBundle.NONE, 0, EMPTY_ROOT)))] for chain in domains]
    moved = view.tables["made"]
    rows_moved = zip(*(moved[name].tolist() for name in ("chain", "what", "amount_high", "amount_low")), strict=True)
    lists: dict[tuple[int, int], list[dict[str, object]]] = {}
    for (chain, kind, high, low), foreign in zip(rows_moved, chain_ids(moved["foreign"]).to_pylist(), strict=True):
        amount = (high << 64 | low).to_bytes(U128_BYTES, "little")
        lists.setdefault((chain, kind), []).append({"chain_id": foreign, "amount": amount})
    none_burnt = [{"amount": bytes(U128_BYTES)}]
    burnt = [lists.get((chain, TransferRecord.BURNT), none_burnt)[-1]["amount"] for chain in domains]
    columns = {
        "domain_block_number": pa.array(tips["number"].astype(np.uint32)),
        "domain_block_hash": fixed_column(tips["hash"]),
        "domain_block_extrinsic_root": fixed_column(tips["extrinsics_root"]),
        "parent_domain_block_receipt_hash": fixed_column(digests(parent)),
        "consensus_block_number": pa.array(tips["consensus_number"].astype(np.uint32)),
        "consensus_block_hash": fixed_column(tips["consensus_hash"]),
        "inboxed_bundles": pa.array(inboxed, RECEIPTS.schema.field("inboxed_bundles").type),
        "final_state_root": roots,
        "execution_trace": pa.array(
            [[root] for root in roots.to_pylist()], RECEIPTS.schema.field("execution_trace").type
        ),
        "execution_trace_root": fixed_column(digest_rows(HashFunction.BLAKE2B_256, np.ascontiguousarray(tips["root"]))),
        **dict.fromkeys(("consensus_storage_fee", "domain_execution_fee"), zero),
        "burned_balance": pa.array(burnt, pa.binary(U128_BYTES)),
        "chain_rewards": pa.array([[]] * count, RECEIPTS.schema.field("chain_rewards").type),
        **{
            name: pa.array([lists.get((chain, kind), []) for chain in domains], RECEIPTS.schema.field(name).type)
            for kind, name in enumerate(_LISTS)
        },
    }
    honest = RECEIPTS.encode(columns)
    encoded, executed = honest, pa.repeat(pa.scalar(b"", pa.binary()), count)
    if claimed := {row: claims[chain] for row, chain in enumerate(domains) if chain in claims}:
        listed, false = honest.to_pylist(), fraudulent_receipts(columns, claimed)
        submitted = [false.get(row, receipt) for row, receipt in enumerate(listed)]
        encoded = pa.array(submitted, pa.large_binary())
        pairs = zip(submitted, listed, strict=True)
        executed = pa.array([b"" if receipt == own else own for receipt, own in pairs], pa.binary())
    accepted = blank_rows(
        TAKEN_SCHEMA,
        count,
        chain=CONSENSUS_POSITION,
        domain=tips["chain"],
        number=tips["number"],
        receipt=encoded.cast(pa.binary()),
        executed=executed,
        operators=pa.array(
            [encode_set(operators.submitters(*row)) for row in zip(domains, tips["number"].tolist(), strict=True)],
            pa.binary(),
        ),
    )
    after = accepted.select(["chain", "domain", "number"]).with_columns(
        hash=digest_values(HashFunction.BLAKE2B_256, encoded)
    )
    return accepted, replace_domain_rows(known, after.select(RECEIPTED_SCHEMA.names))


def confirm(
    state: State, accepted: Frame, due: int, books: Books, beyond: Collection[int] = ()
) -> tuple[State, list[ChainEvent]]:
    """Confirm receipts that the consensus chain accepted by block ``due``.

    The books apply a receipt as a whole. A refused receipt is not confirmed, nor any later one of its domain
    (``unbooked``), so its exports are never proved. Confirmed value between domains of different lakes is added to
    ``declared``.

    Args:
        state: State of the consensus chain.
        accepted: Receipts in order of acceptance.
        due: Block that confirmations advance to.
        books: Books, changed in place.
        beyond: Positions of other lakes' chains.

    Returns:
        The state after, and the events of refusals and slashed operators.
    """
    ranges = state["range"].with_columns(confirmed_to=np.array([due], dtype=np.uint64))
    state = state.with_tables(range=ranges)
    accepted = accepted.filter(~np.isin(accepted["domain"], state["unbooked"]["domain"]))
    if len(accepted) == 0:
        return state, []
    latest: dict[int, int] = {}
    refused: dict[int, ChainEvent] = {}
    slashed = list[ChainEvent]()
    declared = DeclaredValue(state["declared"], beyond)
    rows = RECEIPTS.decode(accepted["receipt"].cast(pa.large_binary())).require_all()
    counts = rows["inboxed_bundles"].value_lengths().to_numpy(zero_copy_only=False)
    valid = rows["inboxed_bundles"].flatten().field("bundle").to_numpy(zero_copy_only=False)
    owner = np.repeat(np.arange(len(counts)), counts)
    invalid = set(np.flatnonzero(np.bincount(owner[valid == 0], minlength=len(counts)) > 0).tolist())
    ends = zip(accepted["domain"].tolist(), accepted["number"].tolist(), receipt_transfers(rows), strict=True)
    for row, (domain, number, moves) in enumerate(ends):
        if domain in refused:
            continue
        try:
            if moves:
                books.apply_all(domain, moves)
        except BookError as error:
            refused[domain] = ChainEvent(CONSENSUS_POSITION, domain, error.error.name, index=number, refused=True)
        else:
            latest[domain] = row
            declared.note(domain, moves)
            if row in invalid:
                slashed.append(ChainEvent(CONSENSUS_POSITION, domain, OPERATOR_SLASHED, index=number))
    if refused:
        more = [
            {"chain": CONSENSUS_POSITION, "domain": domain, "number": notice.index}
            for domain, notice in refused.items()
        ]
        state = state.with_tables(
            unbooked=replace_domain_rows(state["unbooked"], table_from_rows(more, UNBOOKED_SCHEMA))
        )
    if declared.changed:
        state = state.with_tables(declared=declared.frame())
    if latest:
        newest = accepted.take(np.array(sorted(latest.values()), dtype=np.int64)).select(CONFIRMED_SCHEMA.names)
        state = state.with_tables(confirmed=replace_domain_rows(state["confirmed"], newest))
    return state, [*refused.values(), *slashed]


def receipt_transfers(rows: pa.RecordBatch) -> list[list[tuple[TransferRecord, int, int]]]:
    """Return the transfer records of each receipt: kind, other chain's position, amount.

    They are in booking order: arrivals, departures, refusals, claims, burns (X-3).
    """
    moves: list[list[tuple[TransferRecord, int, int]]] = [[] for _ in range(rows.num_rows)]
    for kind in (TransferRecord.IN, TransferRecord.OUT, TransferRecord.REJECTED, TransferRecord.CLAIMED):
        lists = rows[_LISTS[kind]]
        counts = lists.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
        items = lists.flatten()
        words = to_limbs(items.field("amount")).tolist()
        foreign = positions_of_ids(items.field("chain_id")).tolist()
        of_row = np.repeat(np.arange(len(moves)), counts).tolist()
        for row, other, (low, high) in zip(of_row, foreign, words, strict=True):
            moves[row].append((kind, other, high << 64 | low))
    for row, (low, high) in enumerate(to_limbs(rows["burned_balance"]).tolist()):
        if low or high:
            moves[row].append((TransferRecord.BURNT, CONSENSUS_POSITION, high << 64 | low))
    return moves


def due_heights(state: State, context: Context) -> tuple[int, Frame]:
    """Return the block that confirmations advance to, and the heights with receipts to read (``HEIGHTS_SCHEMA``).

    The heights cover new confirmations and fraud proofs of this block.
    """
    history, before = state["history"], int(state["range"]["confirmed_to"][0])
    due = max(before, context.number - context.options.challenge_period)
    of_consensus, numbers = history["chain"] == CONSENSUS_POSITION, history["number"].astype(np.int64)
    wanted = (numbers > before) & (numbers <= due)
    frauds = state["frauds"]
    found = frauds["taken"][frauds["found"] <= np.uint64(context.number)]
    if len(found):
        wanted |= numbers >= int(found.min())
    return due, heights_frame(
        [(CONSENSUS_POSITION, *run) for run in height_runs(history["height"][of_consensus & wanted])]
    )


def retain_blocks(state: State, blocks: Frame, window: RangeWindow, options: XdmOptions) -> State:
    """Remove consensus blocks that are no longer needed, and advance the stored mountain range.

    Args:
        state: State of the consensus chain.
        blocks: All blocks including the latest.
        window: Mountain range with all leaves.
        options: Options of the protocol.
    """
    number = blocks["number"][-1]
    keep = np.uint64(options.mmr_roots + options.archiving_depth)
    # The anchor's block is retained regardless of its age.
    final = np.flatnonzero(blocks["number"] + np.uint64(options.archiving_depth) <= number)
    oldest = int(final[-2]) if len(final) > 1 else 0
    first = min(oldest, int(np.searchsorted(blocks["number"] + keep, number)))
    if first == 0:
        return state.with_tables(blocks=blocks)
    before = window.state(int(blocks["leaf_count"][first])).encode()
    changed = state["range"].with_columns(range=pa.array([before], pa.binary()))
    return state.with_tables(blocks=blocks.slice(first, len(blocks)), range=changed.select(RANGE_SCHEMA.names))


def anchor_number(blocks: Frame, number: int, depth: int) -> tuple[int, int] | None:
    """Return the rows of the latest final block and of its predecessor, or None.

    The final block's range has the predecessor's leaf.

    Args:
        blocks: ``BLOCKS_SCHEMA``.
        number: Number of the latest block.
        depth: Depth of final blocks.
    """
    final = int(np.searchsorted(blocks["number"] + np.uint64(depth), np.uint64(number), side="right")) - 1
    return (final, final - 1) if final >= 1 else None


def genesis_range() -> Frame:
    """Return the mountain range before the first block."""
    columns = {"range": pa.array([RangeState().encode()], pa.binary()), "confirmed_to": np.zeros(1, dtype=np.uint64)}
    return Frame({"chain": np.zeros(1, dtype=np.uint32), **columns}, 1)
