"""What ``causeway demo`` says of its scenario, ``demo.toml``: its protocol's words, and what outcomes come from."""

from __future__ import annotations

CHAINS = 12
"""Chains of the scenario."""

FIRST_CHAIN = "atlas"
"""By its first chain a demo knows the lake of an earlier one."""

FURTHER_CHAIN = "subnet-{}"
"""Names of chains, by number, when there are more than the scenario has."""

GONE = "/birch-channel-2"
"""How the name of the program ends that is on no chain."""

CHAINS_WORD, PROGRAMS_WORD, LANES_WORD = "subnets", "canisters", "streams"

CLOSER_LOOKS = ("--table lanes --chain atlas", "--table program_caller --height 10 --chain birch")
"""Options of ``causeway state`` that are worth a look."""

EXPLAINED = {
    ("rejected", "Unknown"): "calls rejected by a policy, every 400th of a stream",
    ("rejected", "CanisterMigrating"): "calls from a canister that moved while they were in transit",
    ("rejected", "NON_EXISTENT_CANISTER"): "calls to a canister that does not exist",
    ("rerouted", "CanisterMigrating"): "answers to a canister that was moving",
    ("forged", "CanisterMigrating"): "call forged by a subnet that does not host its sender",
    ("slice", "InvalidStream(RootHashMismatch)"): "slice of a stream altered by a carrier: root mismatch",
    ("ingress", "ChainHalted"): "messages from users to a halted subnet",
}
"""What stands behind an outcome and its reason in this network."""

ENDED = {
    "rejected": "reported to the caller",
    "rerouted": "rerouted to its new subnet",
    "forged": "refused",
    "slice": "refused, fetched again",
    "ingress": "reported to the user",
    "dropped": "dropped, as the protocol declares",
    "pending": "still in progress",
}
"""How it ended."""
