"""The kernel in this process, driven from outside: what is planned, what is brought, what stands in the state.

Users are programs of the class ``caller``, one an account name on each chain; what they send goes to a program there.
What carriers bring can be held, changed and added to, as whole envelopes of the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.core.frame import Frame, concat
from causeway.protocols.contract import Plan, Tick
from causeway.protocols.shared.option_values import LARGEST
from causeway.protocols.xdm.kernel import XdmPlan
from causeway.protocols.xdm.options import ChannelCallOptions
from causeway.protocols.xdm.relay.carriers import first_delivery, sort_rows
from causeway.protocols.xdm.relay.envelopes import decode_envelopes, encode_envelopes
from causeway.protocols.xdm.state import MAX_NONCE, State
from causeway.protocols.xdm.storage import STORAGE_SCHEMA, ChainTries, storage_changes
from causeway.protocols.xdm.tables import BASE, ENVELOPES_SCHEMA
from causeway.protocols.xdm.validate import DeliveredEnvelopes
from tests.spec.xdm.mmr import Mmr, keccak256
from tests.spec.xdm.network import Gossip
from tests.spec.xdm.options import Options
from tests.spec.xdm.proofs import Kind
from tests.spec.xdm.values import Chain, MmrLeaf, encode_leaf
from tests.support.xdm.properties.xdm_kernel_rows import chain_of, position_of, row_dicts
from tests.support.xdm.properties.xdm_networks import FUNDS
from tests.support.xdm.xdm_network import Network

ACCOUNTS = (b"alice", b"bob", b"root", b"exact", b"alive", b"poor")
ECHO, NOWHERE = 8, 9
"""On each chain a program of ``ACCOUNTS`` each, then one that echoes, then the number of one that is not installed."""
FORGED, FORGER = 2**62, "forger"
"""Above which bases are of what bad operators bring, and what they are called."""
SPECIAL = "tests.support.xdm.properties.xdm_programs:Special"
WIDTH = 1_000
_MEMORY = ("relaying", "envelopes", "nodes", "bases")


def number_of(chain: Chain, name: bytes) -> int:
    """The program that an account's name is on a chain."""
    return WIDTH * position_of(chain) + ACCOUNTS.index(name.rstrip())


def kernel_options(options: Options, weights: Mapping[Chain, tuple[int, int]], names: list[str]) -> dict[str, Any]:
    """The options of the kernel that say what those of the oracle say."""
    assert options.price == 1 and options.existential_deposit == 1 and options.longevity == Options.longevity
    same = (
        *("fee_model", "v0_mint", "initiate_by", "close_by", "inbox", "allowlist", "strict_envelope", "pool_tag"),
        *("trust_tag", "force_close", "archiving_depth", "challenge_period", "max_outgoing_messages", "relay_fee"),
        *("fee_multiplier", "mmr_roots", "resubmit_after", "message_weight", "response_weight", "minimum_transfer"),
        *("weight_per_unit", "max_future_nonces"),
    )
    own = {}
    for chain, pair in weights.items():
        own[names[position_of(chain)]] = dict(
            zip(("message", "response"), (min(w, LARGEST) for w in pair), strict=True)
        )
    given = {name: getattr(options, name) for name in same}
    if any(max(pair) > LARGEST for pair in weights.values()):  # as much as options can say, of all parts, is too much
        given["relay_fee"] = LARGEST
        own = {name: {"message": LARGEST, "response": LARGEST} for name in own}
    return {
        **given,
        "max_messages": min(options.max_messages, MAX_NONCE + 1),
        "channel_reserve_fee": options.reserve,
        "reserve_portion_percent": options.reserve_portion,
        "weights": own,
        "endowment": 0,
        "root_balance": FUNDS[b"root"],
        "channels": "initiate",
        "calls_wait": "off",
    }


def _born(frame: Frame, number: int) -> Frame:
    base = (frame["base"] << np.uint64(40)) | np.uint64(2 * number)
    return frame.with_columns(base=base)


class Driven(Network):
    """A network of which a test changes what is planned, what is brought, and what stands in the state."""

    def __init__(self, *args: Any, **rest: Any) -> None:
        self.relaying, self.copies = True, 1
        self.gossip: Gossip | None = None
        self.rogue: list[Callable[[State], State]] = []
        self.raw: list[tuple[int, bytes, bytes]] = []
        """Entries that the runtime of a chain puts into its storage against the rules, before the next block."""
        self.air: list[tuple[int, Kind, bytes]] = []
        """Whole envelopes on their way: the block that they come to, what they are, and their bytes."""
        self.bundled: dict[int, int] = {}
        """The ticks in which the operator of a chain puts all that is brought into its bundle, unchecked."""
        self.unread: list[tuple[Kind, bytes]] = []
        """Those of the last block that no chain can read: they come to none."""
        super().__init__(*args, **rest)
        self.mmr = Mmr()
        self.leaves: dict[int, bytes] = {}
        self.hashes: dict[int, bytes] = {}
        self._keep_leaf()

    def tell(self, caller: int, payload: bytes) -> None:
        self._told.append((self._number[self._host[caller]], caller, 0, "call", payload))

    def set_allowlists(self, lists: Mapping[Chain, Iterable[Chain]]) -> None:
        """Begin with allow lists that no call has made."""
        pairs = sorted((position_of(c), position_of(f)) for c, others in lists.items() for f in others)
        columns = np.array(pairs, dtype=np.uint32).reshape(-1, 2)
        rows = Frame({"chain": columns[:, 0], "foreign": columns[:, 1]}, len(pairs))
        self.rogue.append(lambda state: state.with_tables(allowlist=rows))
        self.apply_rogue()

    # ---- a block

    def prepare_block(self, planned: tuple[ChannelCallOptions, ...]) -> None:
        options = self.kernel.options
        if planned or options.channel_calls:
            self.kernel = replace(self.kernel, options=options.model_copy(update={"channel_calls": planned}))
        self.apply_rogue()

    def apply_rogue(self) -> None:
        """Change the state between two blocks; the storage and its log have it as of the next block."""
        queued, self.rogue = self.rogue, []
        for change in queued:
            (state,) = self.states
            after = change(state)
            everything = np.arange(len(self.names), dtype=np.uint32)
            rows = storage_changes(state, after, self.kernel.context(everything, Tick(self.height + 1, self.tick + 1)))
            if isinstance(after.kept.tries, ChainTries):
                after.kept.tries.change(rows)
            if len(rows):
                self.logs["storage"].append((self.height + 1, self.tick + 1, rows))
            self.states = [after]
        raw, self.raw = self.raw, []
        for chain, key, value in raw:
            columns = {"key": pa.array([key], pa.binary()), "value": pa.array([value], pa.binary())}
            here = {"chain": np.array([chain], dtype=np.uint32), "present": np.ones(1, dtype=np.uint8)}
            rows = Frame({**here, **columns}, 1).select(STORAGE_SCHEMA.names)
            tries = self.states[0].kept.tries
            assert isinstance(tries, ChainTries)
            tries.change(rows)
            self.logs["storage"].append((self.height + 1, self.tick + 1, rows))

    def end_block(self) -> None:
        self._keep_leaf()
        if not self.relaying:  # operators that are down remember nothing, and have proved nothing
            (state,) = self.states
            self.states = [state.with_tables(**{name: state[name].slice(0, 0) for name in _MEMORY})]

    def _keep_leaf(self) -> None:
        last = next(row_dicts(self.state["blocks"].slice(len(self.state["blocks"]) - 1, len(self.state["blocks"]))))
        number = last["number"]
        fields = [last[name] for name in ("hash", "state_root", "extrinsics_root")]
        hashed, root, extrinsics = (bytes(field) for field in fields)
        self.hashes[number] = hashed
        self.leaves[number] = encode_leaf(MmrLeaf(number, hashed, root, extrinsics))
        self.mmr.append(keccak256(self.leaves[number]))

    def carry(self, plan: Plan[XdmPlan]) -> Plan[XdmPlan]:
        brought, now = plan.content.load.delivered, self.tick + 1
        fresh = first_delivery(brought.envelopes["base"]) == now
        pooled, honest = brought.envelopes.filter(~fresh), brought.envelopes.filter(fresh)
        plain = self.relaying and self.gossip is None and self.copies == 1 and now - 1 not in self.bundled
        due = [item for item in self.air if item[0] <= now]
        if plain and not due:
            return plan
        if self.relaying and len(honest):
            response = (honest["substream"] & np.uint64(1)).tolist()
            ends = (honest["source"].tolist(), honest["destination"].tolist(), (honest["base"] >= FORGED).tolist())
            rows = zip(encode_envelopes(replace(brought, envelopes=honest)).to_pylist(), response, *ends, strict=True)
            for data, answers, source, destination, forged in rows:
                kind: Kind = "response" if answers else "request"
                for copy in range(self.copies):
                    relayer = FORGER if forged else f"{chain_of(source)}/{copy}"
                    hook = self.gossip or (lambda data, kind, dst, relayer: [(0, data)])
                    for delay, altered in hook(data, kind, chain_of(destination), relayer):
                        self.air.append((now + delay, kind, altered))
        due = [item for item in self.air if item[0] <= now]
        self.air = [item for item in self.air if item[0] > now]
        values = pa.array([data for *_, data in due], pa.large_binary())
        found, refused = decode_envelopes(values, np.array([kind == "response" for _, kind, _ in due], dtype=bool))
        self.unread = [(kind, data) for (_, kind, data), wrong in zip(due, refused.tolist(), strict=True) if wrong]
        # All of it is new; what waits in a pool stays as it is.
        found = DeliveredEnvelopes(*(_born(frame, now) for frame in (found.envelopes, found.nodes, found.bases)))
        here = np.isin(found.envelopes["destination"], plan.content.running)
        kept = [*ENVELOPES_SCHEMA.names, "base"]
        all_rows = concat([pooled.select(kept), found.envelopes.filter(here).select(kept)])
        held = [frame.filter(first_delivery(frame["base"]) < now) for frame in (brought.nodes, brought.bases)]
        nodes = concat([held[0], found.nodes.select(held[0].names)])
        bases = concat([held[1], found.bases.select(held[1].names)])
        found = DeliveredEnvelopes(all_rows, sort_rows(nodes, (*BASE, "number")), sort_rows(bases, BASE))
        bundled = self.bundled.get(self.tick)
        if bundled is not None and bundled in plan.content.running:
            found = replace(found, unchecked=(bundled,))
        return replace(plan, content=replace(plan.content, load=replace(plan.content.load, delivered=found)))

    # ---- the past

    def storage_at(self, chain: int, number: int) -> dict[bytes, bytes]:
        """The storage of a chain after its block of that number, by the log of its changes."""
        entries: dict[bytes, bytes] = {}
        for height, _, frame in self.logs["storage"]:
            if height > number:
                break
            for row in row_dicts(frame.filter(frame["chain"] == chain)):
                if row["present"]:
                    entries[row["key"]] = row["value"]
                else:
                    entries.pop(row["key"], None)
        return entries
