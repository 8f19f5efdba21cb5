"""What a bad operator of a domain does after a block: another storage, the receipt of it, and envelopes under it (1.4).

The domain itself is executed by honest operators, and its own state is never wrong. What is forged is real all the
same: the root is that of a trie with the domain's entries and a false one, and the envelopes are proved under it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.model.faults import Fault
from causeway.model.frame import Frame, empty_frame
from causeway.model.ledger import Kind
from causeway.proofs.substrate import prove_storage, storage_prefix
from causeway.protocols.contract import View
from causeway.protocols.messages import LANE, blank_messages
from causeway.protocols.sections import OWN_PALLET
from causeway.protocols.xdm.carrying import CarrierInterference
from causeway.protocols.xdm.chain_tries import ChainTries
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.claims import Lie
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.endpoints import TRANSPORTER_ENDPOINT
from causeway.protocols.xdm.envelopes import encode_envelopes
from causeway.protocols.xdm.fault_kinds import AMOUNT, FOUND_AFTER, WHAT
from causeway.protocols.xdm.fraud_tables import CLAIMS_SCHEMA, FORGED_SCHEMA, NEVER_FOUND
from causeway.protocols.xdm.relay import bases_between
from causeway.protocols.xdm.small_tables import rows_of, table_of
from causeway.protocols.xdm.state import REQUEST, Asked, State, channel_rows, substream
from causeway.protocols.xdm.tables import BASE
from causeway.protocols.xdm.tags import request_tags
from causeway.protocols.xdm.transporter import encode_transfers
from causeway.protocols.xdm.validate import Brought
from causeway.protocols.xdm.wire import encode_requests, message_keys

Claim = dict[str, Any]
"""A row of ``CLAIMS_SCHEMA``."""


def forge(state: State, tries: ChainTries, view: View, interference: CarrierInterference, context: Context) -> State:
    """Return the state of chains, whose block is made, with what bad operators claim of it and bring
    (``CLAIMS_SCHEMA``, ``FORGED_SCHEMA``)."""
    faults = interference.frauds(context.chains, context.tick, context.height)
    if not faults and not len(state["claims"]):
        return state if not len(state["forged"]) else state.with_tables(forged=empty_frame(FORGED_SCHEMA))
    claims = {claim["chain"]: claim for claim in rows_of(state["claims"]) if _stands(claim, view)}
    for chain, fault in faults:
        if chain not in claims:
            claims[chain] = _begun(chain, fault, interference, state, tries, view, context)
    made, envelopes = [], []
    for chain in sorted(claims):
        claim = {**claims[chain], "number": context.number}
        trie = _with_entry(tries, tries.present[chain], claim)
        made.append({**claim, "root": tries.tries.roots(trie)[0].tobytes()})
        if claim["what"] == Lie.MESSAGE and len(view.tables["anchor"]):
            if tries.number[chain] >= claim["origin"]:
                # A false receipt was confirmed: what it says is proved as honest operators would.
                tries.tries.close(trie)
                trie = _with_entry(tries, tries.provable[chain], claim)
            envelopes.append((chain, claim["foreign"], _envelope(tries, trie, claim, view)))
        tries.tries.close(trie)
    columns = [list(column) for column in zip(*envelopes, strict=True)] or [[], [], []]
    ends = {name: np.array(columns[at], dtype=np.uint32) for at, name in enumerate(("source", "destination"))}
    forged = Frame({**ends, "envelope": pa.array(columns[2], pa.binary())}, len(envelopes))
    return state.with_tables(claims=table_of(made, CLAIMS_SCHEMA), forged=forged)


def _stands(claim: Claim, view: View) -> bool:
    """Return whether a fraud goes on: its first receipt is not taken in, or is and no proof of the fraud has come."""
    known, frauds = view.tables["receipted"], view.tables["frauds"]
    taken = known["number"][known["domain"] == claim["chain"]]
    if not len(taken) or int(taken[0]) < claim["origin"]:
        return True
    return bool(((frauds["domain"] == claim["chain"]) & (frauds["number"] == claim["origin"])).any())


def _begun(
    chain: int,
    fault: Fault,
    interference: CarrierInterference,
    state: State,
    tries: ChainTries,
    view: View,
    context: Context,
) -> Claim:
    """Return what is claimed of the block that is made now."""
    foreign = CONSENSUS_POSITION if fault.destination is None else interference.positions[fault.destination]
    lie = Lie[str(fault.args[WHAT]).upper()]
    # The lane and nonce that a forged message has: the one that the other side takes next, in the last channel of
    # the two chains, or in the first that there may be.
    ends = {"source": np.array([chain], dtype=np.uint32), "destination": np.array([foreign], dtype=np.uint32)}
    channels = state["channels"]
    numbers = channels["channel"][(channels["chain"] == chain) & (channels["foreign"] == foreign)]
    channel = np.array([int(numbers.max()) if len(numbers) else 0], dtype=np.uint64)
    theirs = view.tables["channels"]
    row = int(channel_rows(theirs, ends["destination"], ends["source"], channel)[0])
    index = int(theirs["next_inbox"][row]) if row >= 0 else 0
    lane = Frame({**ends, "substream": substream(channel, REQUEST), "index": np.array([index], dtype=np.uint64)}, 1)
    claim: Claim = {
        "chain": chain,
        "destination": CONSENSUS_POSITION,
        "origin": context.number,
        "number": context.number,
        "what": int(lie),
        "found_after": int(fault.args.get(FOUND_AFTER, NEVER_FOUND)),
        "foreign": foreign,
        "substream": int(lane["substream"][0]),
        "index": int(lane["index"][0]),
        "amount": int(fault.args[AMOUNT]),
        "key": b"",
        "value": b"",
    }
    if lie == Lie.MESSAGE:
        entry = {"key": message_keys(lane)[0].as_py(), "value": _message(lane, claim, state["channels"], context)}
    elif lie in (Lie.ROOT, Lie.BUNDLE):
        key = storage_prefix(OWN_PALLET, "money")
        now = tries.tries.get(np.array([tries.present[chain]]), [key])[0].as_py()
        entry = {"key": key, "value": now[:-1] + bytes([now[-1] ^ 1])}
    else:
        entry = {}
    return claim | entry


def _message(lane: Frame, claim: Claim, channels: Frame, context: Context) -> bytes:
    """Return a transfer that nobody has sent, to the first program of the chain that it goes to."""
    programs = context.network.programs
    there = programs[context.network.host_of(programs) == claim["foreign"]]
    receiver = int(there[0]) if len(there) else 0
    asked = blank_messages(
        1,
        kind=np.array([Kind.REQUEST], dtype=np.uint8),
        sender=np.array([receiver], dtype=np.uint64),
        receiver=np.array([receiver], dtype=np.uint64),
        amount_low=np.array([claim["amount"]], dtype=np.uint64),
    ).with_columns(**{name: lane[name] for name in LANE})
    zero, endpoint = np.zeros(1, dtype=np.uint64), np.full(1, TRANSPORTER_ENDPOINT, dtype=np.uint64)
    request = lane.with_columns(
        asked=np.array([Asked.ENDPOINT], dtype=np.uint8),
        max_outgoing=np.zeros(1, dtype=np.uint32),
        src_endpoint=endpoint,
        dst_endpoint=endpoint,
        payload=encode_transfers(asked).cast(pa.binary()),
        src_fee=zero,
        dst_fee=zero,
        next_response=zero,
    )
    message: bytes = encode_requests(request, channels)[0].as_py()
    return message


def _with_entry(tries: ChainTries, trie: int, claim: Mapping[str, Any]) -> np.ndarray:
    """Return the number of a new trie with the entries of another and that of a claim."""
    copy = tries.tries.copy(np.array([trie], dtype=np.int64))
    if claim["key"]:
        tries.tries.update(copy, [claim["key"]], [claim["value"]])
    return copy


def _envelope(tries: ChainTries, trie: np.ndarray, claim: Claim, view: View) -> bytes:
    """Return the envelope of a forged message, proved under a forged trie."""
    ends = {
        "source": np.array([claim["chain"]], dtype=np.uint32),
        "destination": np.array([claim["foreign"]], dtype=np.uint32),
    }
    base = np.zeros(1, dtype=np.uint64)
    proof = prove_storage(tries.tries, trie, [claim["key"]])
    nodes = proof.nodes_of(0)
    numbers = np.arange(len(nodes), dtype=np.uint32)
    envelope = Frame(
        {
            **ends,
            "substream": np.array([claim["substream"]], dtype=np.uint64),
            "index": np.array([claim["index"]], dtype=np.uint64),
            "tag": request_tags(np.array([Asked.ENDPOINT]), np.array([TRANSPORTER_ENDPOINT], dtype=np.uint64)),
            "members": pa.array([numbers.astype("<u4").tobytes()], pa.binary()),
            "base": base,
        },
        1,
    )
    rows = envelope.select(BASE).take(np.zeros(len(nodes), dtype=np.int64))
    of_nodes = rows.with_columns(number=numbers, node=pa.array(nodes, pa.binary()))
    bases = bases_between(Frame(ends, 1), view).with_columns(base=base)
    encoded: bytes = encode_envelopes(Brought(envelope, of_nodes, bases))[0].as_py()
    return encoded
