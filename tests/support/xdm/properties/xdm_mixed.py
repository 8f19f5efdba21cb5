"""Random networks with forks and everything else that the kernel of cross-domain messages knows, played in lockstep:
cut into different numbers of buckets, or without what is derived from tables, they must be the same after every tick.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa
from causeway_proofs.order import stable_order

from causeway.core.frame import Frame, concat
from causeway.protocols.contract import earliest
from tests.support.xdm.xdm_network import Network

Calls = dict[int, list[tuple[int, int, bytes, int, str]]]
"""By block what users call: caller, receiver, body, amount, method."""

Placed = str | tuple[str, dict[str, Any]]

SPECIAL = "tests.support.xdm.properties.xdm_programs:Special"
CARRIERS = ("drop", "delay", "reorder", "replay", "tamper")
KINDS = (*CARRIERS, "halt", "halt", "bundle", "fraud", "fraud")


def mixed(seed: int, blocks: int) -> tuple[dict[str, Any], Calls]:
    """Return a network (keywords of ``Network``) whose consensus chain has forks, and what users call in its first
    ``blocks`` blocks: channels are opened, by one side or by both at once, and closed, allow lists change."""
    rng = random.Random(seed)
    names = ["consensus", "a", "b", "c", "d", "e"][: rng.choice([3, 3, 4, 5, 6])]
    if rng.random() < 0.3:
        names = names[1:] + names[:1]
    programs = {name: (10 * place + 1, 10 * place + 2) for place, name in enumerate(names)}
    options = _options(rng, names, blocks)
    faults = [fault(rng, names, options["challenge_period"], blocks) for _ in range(rng.randrange(6))]
    faults += _forks(rng, options["archiving_depth"], blocks)
    callers, echoes = (list(numbers) for numbers in zip(*programs.values(), strict=True))
    calls: Calls = {}
    for block in range(blocks):
        for _ in range(rng.randrange(5)):
            ends = rng.choice(callers), rng.choice([*callers, *echoes, 999])
            body = rng.choice([b"", bytes([block % 256]) * 60, b"!no", b"*fails"])
            method = rng.choice(["call", "call", "call", "transporter.transfer"])
            calls.setdefault(block, []).append((*ends, body, rng.choice([0, 0, 7, 10**6, 10**30]), method))
    chains = {name: {one: "caller", other: _answering(rng, echoes, other)} for name, (one, other) in programs.items()}
    balance = rng.choice([0, 10**7])
    return {"chains": chains, "options": options, "balance": balance, "faults": faults, "seed": seed}, calls


def _options(rng: random.Random, names: list[str], blocks: int) -> dict[str, Any]:
    depth = rng.choice([2, 3, 5, 9])
    options: dict[str, Any] = {
        "archiving_depth": depth,
        "challenge_period": rng.choice([1, 3, 8, 20]),
        "inbox": rng.choice(["stored", "pool"]),
        "fee_model": rng.choice(["v0", "v1"]),
        "max_outgoing_messages": rng.choice([1, 3, 100]),
        "max_future_nonces": rng.choice([0, 2, 256]),
        "channels_per_block": rng.choice([1, 15, 2**62]),
        "resubmit_after": rng.choice([2, 5, 15]),
        "mmr_roots": rng.choice([depth + 2, depth + 5, 1024]),
        "trust_tag": rng.choice(["off", "on"]),
        "pool_tag": rng.choice(["with_src", "without_src"]),
        "force_close": rng.choice(["off", "on"]),
        "calls_wait": rng.choice(["on", "on", "off"]),
        "channels": rng.choice(["open", "initiate"]),
    }
    if rng.random() < 0.25:
        weights = {"message": rng.choice([10**6, 5 * 10**7]), "response": 10**7}
        options |= {"v0_mint": "recomputed", "weights": {rng.choice(names): weights}}
    planned = [channel_call(rng, names, blocks + 10) for _ in range(rng.randrange(6))]
    pairs = [(one, other) for one in names for other in names if one < other]
    if options["channels"] == "initiate":
        for ends in rng.sample(pairs, rng.randrange(1, len(pairs) + 1)):
            # Where both sides begin at once neither is ever answered (hazard 9).
            both = [ends, ends[::-1]][: 2 if rng.random() < 0.4 else 1]
            planned += [{"tick": rng.randrange(3), "chain": one, "foreign": other} for one, other in both]
        late = rng.choice(pairs)
        planned.append({"tick": rng.choice([blocks, 3 * blocks]), "chain": late[0], "foreign": late[1]})
    if rng.random() < 0.4:
        ordered = [(one, other) for one in names for other in names if one != other]
        some = rng.sample(ordered, rng.randrange(len(ordered) // 2, len(ordered) + 1))
        lists = [{"tick": rng.randrange(3), "chain": one, "foreign": other, "do": "add"} for one, other in some]
        for one, other in rng.sample(ordered, rng.randrange(4)):
            do = rng.choice(["add", "remove"])
            lists.append({"tick": rng.randrange(blocks), "chain": one, "foreign": other, "do": do})
        options |= {"allowlist": "on", "allowlist_calls": lists}
    if rng.random() < 0.3:
        options |= {"initiate_by": "signed", "close_by": "owner_or_root"}
        for call in planned:
            call["by"] = 10 * names.index(call["chain"]) + 1 if rng.random() < 0.9 else "root"
    return {**options, "channel_calls": planned}


def _answering(rng: random.Random, echoes: list[int], own: int) -> Placed:
    """Return what a program that is called does: it echoes, or fails at times, or asks others before it answers."""
    some = [number for number in rng.sample(echoes, min(2, len(echoes))) if number != own]
    asks, late = ("fan_out", {"targets": some}), ("faulty", {"late_every": 2, "late_by": 3})
    kinds: list[Placed] = ["echo", "echo", SPECIAL, asks, late]
    return rng.choice(kinds)


def channel_call(rng: random.Random, names: list[str], blocks: int) -> dict[str, Any]:
    """Return a call about a channel in one of the first ``blocks`` blocks: most open one, some close one."""
    chain, foreign = rng.sample(names, 2)
    call: dict[str, Any] = {"tick": rng.randrange(blocks), "chain": chain, "foreign": foreign}
    if rng.random() < 0.4:
        return {**call, "do": "close", "channel": rng.randrange(2)}
    return {**call, "do": "initiate", "max_outgoing": rng.choice([1, 4])}


def fault(rng: random.Random, names: list[str], period: int, blocks: int) -> tuple[Any, ...]:
    """Return a fault that begins in one of the first ``blocks`` blocks, of domains with this challenge period."""
    kind = rng.choice(KINDS)
    domains = [name for name in names if name != "consensus"]
    source, destination = rng.sample(names, 2) if rng.random() < 0.5 else (None, None)
    args: dict[str, Any] = {"every": rng.choice([1, 2, 3])}
    if kind in ("delay", "replay"):
        args["blocks"] = rng.randrange(1 if kind == "delay" else 0, 9)
    elif kind == "reorder":
        args = {"of": rng.choice([2, 3, 5])}
    elif kind == "tamper":
        args["what"] = rng.choice(["node", "tag", "nonce", "source", "base"])
    elif kind == "halt":
        source, destination, args = rng.choice(names), None, {}
    elif kind == "bundle":
        source, destination, args = rng.choice(domains), None, {"what": rng.choice(["base", "node", "nonce"])}
    elif kind == "fraud":
        source = rng.choice(domains)
        destination = rng.choice([name for name in names if name != source])
        what = rng.choice(["message", "root", "transfers", "bundle"])
        args = {"what": what, "amount": 5, "chance": rng.choice([0.3, 1.0]), "found_after": rng.randint(1, period)}
    first = rng.randrange(blocks)
    return kind, source, destination, first, first + rng.randrange(20), args


def _forks(rng: random.Random, depth: int, blocks: int) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for _ in range(rng.randrange(1, 5)):
        first = rng.randrange(1, blocks + 20)
        for tick in range(first, first + rng.choice([1, 1, 3])):
            found.append(("reorg", None, None, tick, tick, {"depth": rng.randrange(1, depth)}))
    if rng.random() < 0.4:
        args = {"chance": rng.choice([0.05, 0.2]), "most": depth - 1}
        found.append(("reorg", None, None, 3, rng.choice([blocks + 30, 4 * blocks]), args))
    return found


class After(NamedTuple):
    """What a network is after a tick: roots, when it wakes, what was logged and the rows of all its state tables."""

    roots: dict[str, bytes]
    wake: int | None
    needs: int | None
    logs: dict[str, list[dict[str, Any]]]
    tables: dict[str, pa.Table]


def after(net: Network) -> After:
    """Return what a network is after its last tick, whatever its buckets."""
    wake, needs = (earliest(*(getattr(one, name) for one in net.results)) for name in ("wake", "needs"))
    logs = {}
    for name, rows in net.logs.items():
        frames = [frame for height, _, frame in rows if height == net.height]
        if frames:
            frame = concat(frames)  # of one chain in the order in which it logged them
            rows_of = _plain(frame.take(stable_order(frame["chain"])), net.kernel.logs[name])
            logs[name] = rows_of.to_pylist()
    state = net.state.frames()
    tables = {name: _plain(state[name], table.schema) for name, table in net.kernel.tables().items()}
    return After(net.roots(), wake, needs, logs, tables)


def _plain(frame: Frame, schema: pa.Schema) -> pa.Table:
    columns = frame.to_table(schema).combine_chunks().columns
    plain = [one.cast(one.type.value_type) if pa.types.is_dictionary(one.type) else one for one in columns]
    return pa.Table.from_arrays(plain, names=schema.names)


def difference(one: After, other: After) -> str:
    """Return what differs between two networks after a tick, nothing if they are the same."""
    found = [name for name in ("roots", "wake", "needs") if getattr(one, name) != getattr(other, name)]
    found += [f"log {name}" for name in sorted({*one.logs, *other.logs}) if one.logs.get(name) != other.logs.get(name)]
    found += [f"table {name}" for name in one.tables if not one.tables[name].equals(other.tables[name])]
    return ", ".join(found)


def play(nets: Mapping[Any, Network], calls: Calls, blocks: int, rounds: int) -> int:
    """Play networks in lockstep, at most so many rounds, and assert that they are the same after each; return how many
    were played until they came to rest."""
    first = next(iter(nets.values()))
    for turn in range(rounds):
        known = after(first)
        if turn >= blocks and known.wake is None:
            return turn
        at = first.tick + 1 if turn < blocks else max(first.tick + 1, known.wake or 0)
        for net in nets.values():
            for caller, receiver, body, amount, method in calls.get(turn, ()):
                net.call(caller, receiver, body, amount=amount, method=method)
            net.sleep(at)
        found = after(first)
        for name, net in nets.items():
            different = "" if net is first else difference(found, after(net))
            assert not different, f"{name}: height {net.height}, tick {net.tick}: {different}"
    return rounds
