"""How many networks the comparisons of the IBC kernel played, and how often what happened in them: a run shows it."""

from __future__ import annotations

from collections import Counter

from tests.spec import ibc
from tests.support.ibc.ibc_harness import OracleRun, Scenario

NETWORKS: Counter[str] = Counter()
"""Networks, by what they had."""
HAPPENED: Counter[str] = Counter()
"""Rows of the oracle's logs, refusals by their error."""
STRANGERS: Counter[str] = Counter()
"""Calls of strangers, by call and outcome."""

COUNTS = {"networks": NETWORKS, "rows": HAPPENED, "calls of strangers": STRANGERS}
"""All of them, by what a run's summary calls them."""

MUST = {
    "updateHeader": ("HeaderAdded", "NoOp", "UnregisteredSender", "ConnectionFrozen", "ClientExpired", "InvalidHeader",
                     "NeedIntermediateHeader", "InvalidPacket"),
    "submitMisbehaviour": ("taken", "InvalidMisbehaviour", "InvalidHeader"),
    "IBCreceive": ("taken", "UnregisteredSender", "ConnectionFrozen", "MalformedKey", "OnlyMessageProofs", "OutOfOrder",
                   "MissingHeader", "InvalidProof"),
    "IBCreceipt": ("taken", "UnregisteredSender", "ConnectionFrozen", "MissingHeader", "InvalidProof"),
    "IBCtimeout": ("taken", "CallNotOffered", "MissingHeader", "InvalidProof", "TimeoutNotReached"),
    "IBCcleanup": ("taken", "CallNotOffered", "MissingHeader", "InvalidProof", "CleanupBackwards"),
    "transaction": ("ChainHalted",),
}  # fmt: skip
"""What must have come of the calls of strangers in the comparisons of a run."""


def count(scenario: Scenario, oracle: OracleRun) -> None:
    """Count a network that was played to its end."""
    options = scenario.options
    unordered, limited = options.get("order") == "unordered", options.get("timeouts") == "on"
    had = {
        "networks": True,
        "unordered": unordered,
        "time-outs": limited,
        "unordered with time-outs": unordered and limited,
        "validator sets that change": bool(options.get("rotation")),
        "short unbonding periods": "unbonding_seconds" in options,
        "delays": "delay_seconds" in options,
        "delays with time-outs": limited and "delay_seconds" in options,
        "lying relayers": bool(scenario.carriers),
        "halts": bool(scenario.halts),
        "forged packets": bool(scenario.forged),
        "forks": bool(scenario.forks),
        "recoveries": bool(scenario.recoveries),
        "disconnects": bool(scenario.disconnects),
        "strangers": any(scenario.outside.values()),
    }
    NETWORKS.update(name for name, true in had.items() if true)
    for row in oracle.net.log:
        if isinstance(row, ibc.Refused):
            HAPPENED[row.error] += 1
        elif not isinstance(row, ibc.Root):
            HAPPENED[type(row).__name__] += 1
    STRANGERS.update(oracle.strangers.did)


def missing() -> list[str]:
    """What strangers never did, or what never came of it."""
    return [f"{call} {why}" for call, reasons in MUST.items() for why in reasons if not STRANGERS[f"{call} {why}"]]


def summary() -> list[str]:
    """The counts as lines, none where nothing was played."""
    if not NETWORKS:
        return []
    lines = []
    for title, counts in COUNTS.items():
        parts = ", ".join(f"{name} {number}" for name, number in sorted(counts.items()))
        lines.append(f"IBC kernel against oracle, {title}: {parts}")
    return lines
