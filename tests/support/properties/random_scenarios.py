"""Random scenarios of all protocols: options, faults, forks, and what changes while the network runs.

They begin as those of ``tests.chance_lakes`` and get more: any options of the protocol, relay and consensus chains that
halt, chains that halt for ever, moves, and changes that install, upgrade, move and remove programs, inject and heal
faults. Hypothesis draws the random numbers, so it shrinks what fails.
"""

from __future__ import annotations

import tomllib
from random import Random
from typing import Any

from causeway_proofs.errors import InvalidInput
from hypothesis import strategies as st

from causeway.compare.faults import format_toml_value
from causeway.protocols.registry import find_protocol as registered
from causeway.scenarios.scenario import scenario_from
from tests.chance_lakes import PROTOCOLS, faults_of, scenario_by

Section = dict[str, Any]

OPTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "ic": {
        "signal_form": ("compact",),
        "vsr": ("accept_all", "deployed"),
        "sender_mismatch": ("deployed",),
        "receiver_check": ("off",),
        "validate_signals": ("off",),
        "empty_slice": ("allow",),
        "loopback": ("seed_literal",),
        "dead_destination": ("seed_literal",),
        "limits": ("deployed",),
        "timeouts": ("on",),
        "migrations": ("on", "on"),
        "payload_bytes": (0, 300, 5_000),
        "messages_per_canister": (0, 1, 3),
    },
    "ibc": {
        "order": ("unordered",),
        "acknowledgements": ("synchronous",),
        "cleanup": ("on",),
        "timeout_seconds": (4.0, 10.0),
        "validators": (1, 5),
        "rotation": ({"every": 2}, {"every": 3, "replace": 2}),
        "trusted_headers": (2, 3),
        "delay_seconds": (2.0, 7.0),
        "relay": ({"proofs": "single"}, {"min_batch": 3, "max_wait": 2}, {"max_packets": 1}),
        "relayers": (["one", "two", "three"],),
    },
    "xdm": {
        "v0_mint": ("recomputed",),
        "initiate_by": ("signed",),
        "pool_tag": ("without_src",),
        "trust_tag": ("on",),
        "strict_envelope": ("off",),
        "max_outgoing_messages": (1, 2),
        "max_messages": (3, 20),
        "max_future_nonces": (0, 1, 4),
        "channels_per_block": (1,),
        "relay_fee": (0, 3),
        "calls_wait": ("off",),
        "minimum_transfer": (0, 10),
        "operators": (4, 7),
        "channels": ("initiate",),
    },
    "icmp": {
        "ingress_upper": ("inclusive",),
        "watermark_mode": ("now_minus_1",),
        "watermark_rule": ("has_messages",),
        "allow_empty_prefix": ("off",),
        "bodies": ("drawn", "simulated"),
        "body_ticks": (0.0, 2.5),
        "body_loss": (0.2,),
        "fallback_request": ("on",),
        "channels": ("hrmp",),
        "overflow": ("drop",),
        "drop_threshold": (1, 1_000),
        "session_blocks": (1, 3),
    },
}
"""Options of each protocol, and values that a scenario may give them; what does not go together is left out."""

FLAWED: dict[str, dict[str, Any]] = {
    "ic": {
        "loopback": "seed_literal",
        "dead_destination": "seed_literal",
        "receiver_check": "off",
        "validate_signals": "off",
        "sender_mismatch": "deployed",
    },
    "ibc": {},
    "xdm": {"pool_tag": "without_src", "v0_mint": "recomputed", "strict_envelope": "off", "trust_tag": "on"},
    "icmp": {"overflow": "drop", "body_loss": 0.2},
}
"""Values of options under which a protocol breaks a guarantee, or gives messages up."""

SPLITTING = {"vsr": "deployed", "sender_mismatch": "deployed", "migrations": "on", "splitting": "on"}
"""Options of networks in which subnets are split."""

HRMP_ONLY = ("no_messages", "many", "oversized")
EGRESS_ONLY = ("root", "no_root", "self", "empty", "duplicate")
"""Candidates of malicious collators that only channels, or only egress queues, have."""

HUBS = {"icmp": "relay", "xdm": "consensus"}
"""Chains with a role, of the protocols that have them."""

TICKS = 90
"""Ticks that a scenario runs at most."""


def dump(document: Section) -> str:
    """Return a scenario as a file, a line a key."""
    return "".join(f"{key} = {format_toml_value(value)}\n" for key, value in document.items())


def is_sound(document: Section) -> bool:
    """Return whether nothing in a scenario lets a guarantee be broken or a message wait for ever.

    Scenarios in which programs, chains or channels leave are not sound: messages to them are given up.
    """
    flaws, splits = dict(FLAWED[document["network"]["protocol"]]), document.get("splits", ())
    if splits:
        flaws.pop("sender_mismatch")  # splits need it
    new = {split["into"] for split in splits}
    changes = document.get("changes", ())
    faults = [fault for each in (document, *changes) for fault in each.get("faults", each.get("inject", ()))]
    return (
        not any(document["options"].get(name) == value for name, value in flaws.items())
        and not any(document["options"].get(name) for name in ("para_calls", "channel_calls", "allowlist_calls"))
        and not any("until" in chain or ("from" in chain and chain["name"] not in new) for chain in document["chains"])
        and not document.get("moves")
        and not any("move" in change or "remove" in change for change in changes)
        and not any("from" in fault and "until" not in fault for fault in faults)
    )


def _fits(document: Section) -> bool:
    """Return whether a scenario is one."""
    try:
        scenario = scenario_from(document, "scenario.toml")
        registered(document["network"]["protocol"]).load_options().model_validate(scenario.options)
    except (InvalidInput, ValueError):
        return False
    return True


def _options(random: Random, document: Section, protocol: str) -> None:
    for name, values in OPTIONS[protocol].items():
        if random.random() < 0.1:
            before = dict(document["options"])
            document["options"][name] = random.choice(values)
            if not _fits(document):
                document["options"] = before


def _hub(random: Random, document: Section, protocol: str) -> None:
    """Name the chain with a role, and let it halt at times."""
    name = HUBS.get(protocol)
    if name is None or random.random() < 0.6:
        return
    document["chains"].append({"name": name, "role": name})
    for _ in range(random.randrange(3)):
        begin = random.randrange(20)
        document["faults"].append({"kind": "halt", "chain": name, "from": begin, "until": begin + random.randrange(8)})


def _calls(random: Random, document: Section, protocol: str, chains: list[str]) -> None:
    """Let chains be deregistered and blocked, channels opened and closed, allow-lists changed, subnets come and go."""
    if random.random() < 0.75:
        return
    ticks = sorted(random.sample(range(1, 30), random.randrange(1, 4)))
    options = document["options"]
    if protocol == "icmp":
        options["para_calls"] = []
        for tick in ticks:
            one, other = random.sample(chains, 2)
            what = random.choice(("register", "deregister", "block", "unblock"))
            about = {"other": other} if what in ("block", "unblock") else {}
            _add(document, options["para_calls"], {"tick": tick, "chain": one, "do": what, **about})
    elif protocol == "xdm":
        options["channel_calls"], options["allowlist_calls"] = [], []
        for tick in ticks:
            one, other = random.sample(chains, 2)
            if random.random() < 0.7:
                call = {"do": random.choice(("initiate", "initiate", "close")), "channel": random.randrange(2)}
                call |= {"max_outgoing": random.choice((0, 1, 9))} if call["do"] == "initiate" else {}
                found = options["channel_calls"]
            else:
                call, found = {"do": random.choice(("add", "remove"))}, options["allowlist_calls"]
            _add(document, found, {"tick": tick, "chain": one, "foreign": other, **call})
    elif protocol == "ic" and random.random() < 0.5:
        _splits(random, document, ticks)
    elif protocol == "ic":
        chain = random.choice(document["chains"])
        chain |= random.choice(({"until": ticks[-1]}, {"from": ticks[0]}, {"from": ticks[0], "until": ticks[-1]}))
        _say_where_messages_arrive(document)


def _splits(random: Random, document: Section, ticks: list[int]) -> None:
    """Let subnets be split, each once: some of their programs go to a new one."""
    document["options"] |= SPLITTING
    document["splits"] = []
    for tick, chain in zip(ticks, random.sample(document["chains"], len(document["chains"])), strict=False):
        there = [program["name"] for program in document["programs"] if program.get("chain") == chain["name"]]
        if not there:
            continue
        new = f"{chain['name']}-new"
        document["chains"].append({"name": new, "from": tick})
        going = random.sample(there, random.randrange(1, len(there) + 1))
        document["splits"].append({"tick": tick, "chain": chain["name"], "into": new, "programs": going})


def _say_where_messages_arrive(document: Section) -> None:
    """Name the chain of each message of a user, and leave out those that come while it is not there."""
    home = {program["name"]: program["chain"] for program in document["programs"]}
    there = {chain["name"]: range(chain.get("from", 0), chain.get("until", TICKS) + 1) for chain in document["chains"]}
    sends = [{**send, "chain": home[send["to"]]} for send in document["traffic"]["send"]]
    document["traffic"]["send"] = [send for send in sends if send["tick"] in there[send["chain"]]]


def _add(document: Section, found: list[Section], call: Section) -> None:
    """Add a call where it is a call of this scenario."""
    found.append(call)
    if not _fits(document):
        found.pop()


def _faults(random: Random, protocol: str, chains: list[str], ticks: int, begin: int) -> list[Section]:
    """Return faults that begin in or after a tick."""
    found: list[Section] = tomllib.loads(faults_of(random, protocol, chains, ticks)).get("faults", [])
    for fault in found:
        for key in ("tick", "from", "until"):
            if key in fault:
                fault[key] += begin
    return found


def _is_of_the_channels(fault: Section, options: Section) -> bool:
    """Return whether parachains have a fault, by how their messages travel and how their watermarks move."""
    what, hrmp = fault.get("what"), options.get("channels") == "hrmp"
    if options.get("watermark_mode") == "now_minus_1" and what == "watermark_back":
        return False
    return what not in (EGRESS_ONLY if hrmp else HRMP_ONLY) and not (hrmp and fault["kind"] in ("fork", "drop"))


def _moves(random: Random, document: Section, names: list[str], chains: list[str]) -> None:
    document["moves"] = [
        {"tick": tick, "program": random.choice(names), "chain": random.choice(chains)}
        for tick in sorted(random.sample(range(30), random.randrange(3)))
    ]


def _changes(random: Random, document: Section, protocol: str, chains: list[str], ticks: int, movable: bool) -> None:
    names = [program["name"] for program in document["programs"] if program["program"] in ("caller", "echo")]
    faults, found = len(document["faults"]), []
    for number, tick in enumerate(sorted(random.sample(range(1, 30), random.choice((0, 0, 1, 2, 3))))):
        change: Section = {"tick": tick}
        if random.random() < 0.4:
            change["inject"] = _faults(random, protocol, chains, ticks, tick)
        if random.random() < 0.4:
            some = sorted(random.sample(range(faults), random.randrange(faults + 1)))
            change["heal"] = random.choice((True, some))
        faults += len(change.get("inject", ()))
        if random.random() < 0.3:
            program = random.choice(("caller", "echo", "none"))
            change["install"] = [{"name": f"new_{number}", "chain": random.choice(chains), "program": program}]
        if random.random() < 0.3:
            name = random.choice(names)
            change["upgrade"] = [{"program": name, "to": "echo" if name.endswith("echo") else "caller"}]
        if movable and random.random() < 0.3:
            change["move"] = [{"program": random.choice(names), "chain": random.choice(chains)}]
        if movable and random.random() < 0.15:
            change["remove"] = [random.choice(names)]
        found.append(change)
        if not _fits({**document, "changes": found}):
            found.pop()
            faults -= len(change.get("inject", ()))
    document["changes"] = found


def random_scenario(protocol: str, random: Random) -> str:
    """Return a scenario of a protocol, as a file."""
    document: Section = {"options": {}, **tomllib.loads(scenario_by(random, protocol, random.randrange(100)))}
    document.setdefault("faults", [])
    chains = [chain["name"] for chain in document["chains"]]
    document["network"]["ticks"] = TICKS
    if random.random() < 0.8:
        document["network"]["commit_every"] = 64  # the files of short commits take most of the time of a small network
    _options(random, document, protocol)
    if document["options"].get("certification") == "bls" and random.random() < 0.8:
        document["options"]["certification"] = "off"  # signatures take most of the time, and change nothing else
    _hub(random, document, protocol)
    _calls(random, document, protocol, chains)
    for fault in document["faults"]:
        if "from" in fault and random.random() < 0.05:
            del fault["until"]
    movable = protocol == "ic"
    if movable and random.random() < 0.25:
        names = [program["name"] for program in document["programs"] if program["program"] != "none"]
        _moves(random, document, names, chains)
        if not _fits(document):
            del document["moves"]
    _changes(random, document, protocol, chains, random.randrange(4, 12), movable)
    if protocol == "icmp":
        for part, key in ((document, "faults"), *((change, "inject") for change in document["changes"])):
            if key in part:
                # Faults that are healed are named by their positions, so what does not fit is replaced.
                tick = part.get("tick", 1)
                instead = {"kind": "halt", "chain": chains[0], "from": tick, "until": tick}
                fits = [_is_of_the_channels(fault, document["options"]) for fault in part[key]]
                part[key] = [fault if fit else dict(instead) for fault, fit in zip(part[key], fits, strict=True)]
    return dump(document)


def scenarios(protocols: tuple[str, ...] = PROTOCOLS) -> st.SearchStrategy[str]:
    """Return a strategy for scenarios of some protocols."""
    return st.builds(random_scenario, st.sampled_from(protocols), st.randoms(use_true_random=False))
