"""Permanently halted networks: ``compare`` prints its table of every protocol."""

from __future__ import annotations

from pathlib import Path

import pytest

from causeway.cli.shell import FAILED, OK
from tests.cases.recorded import Judge
from tests.cases.test_networks import fault

PROTOCOLS = ("ibc", "ic", "icmp", "xdm")

HALTED_FOR_EVER = """
[network]
executor = "in_process"
seed = 5
[[chains]]
count = 2
[[programs]]
name = "alice"
chain = "chain-0"
program = "caller"
balance = 100
[[programs]]
name = "echo"
chain = "chain-1"
program = "echo"
[[programs]]
name = "bob"
chain = "chain-1"
program = "caller"
balance = 100
[traffic]
source = "script"
send = [
  { tick = 0, to = "alice", call = { receiver = "echo", method = "m", text = "a" } },
  { tick = 4, to = "bob", call = { receiver = "echo", method = "m", text = "b" } },
]
"""
HALTED_CHAINS = """
[network]
executor = "in_process"
seed = 5
[protocols.xdm]
archiving_depth = 2
challenge_period = 3
channels = "open"
[[protocols.xdm.channel_calls]]
tick = 0
chain = "chain-0"
foreign = "chain-1"
max_outgoing = 3
[[chains]]
count = 4
[traffic]
source = "generated"
messages = 40
ticks = 8
channels = 4
"""

SCENARIOS = {
    "a chain that is halted for ever": HALTED_FOR_EVER + fault("halt", 2, None, chain="chain-1"),
    "two chains that are halted, one for ever, and a lane that is cut": HALTED_CHAINS
    + fault("halt", 4, 12, chain="chain-1")
    + fault("halt", 6, None, chain="chain-3")
    + fault("drop", 2, 9, source="chain-0", destination="chain-2"),
}


WAITING = {
    "a chain that is halted for ever": "1",
    "two chains that are halted, one for ever, and a lane that is cut": "3",
}
"""Messages of users pending at a halted chain under icmp: a row of the table."""


@pytest.mark.parametrize(
    ("name", "protocols"),
    [
        pytest.param("a chain that is halted for ever", ("ibc", "icmp"), marks=pytest.mark.slow),
        *(pytest.param(name, PROTOCOLS, marks=pytest.mark.slow) for name in SCENARIOS),
    ],
)
def test_comparison_table_of_every_protocol(
    name: str, protocols: tuple[str, ...], judge: Judge, tmp_path: Path
) -> None:
    (tmp_path / "s.toml").write_text(SCENARIOS[name])
    named = ("--protocols", ",".join(protocols), "--faults", "none")
    code, out, err = judge.command("compare", str(tmp_path / "s.toml"), *named)
    assert code == (FAILED if "FAILED" in out else OK), out + err
    assert "failed:" not in out
    users = {line.split("  ")[1]: line.split()[-len(protocols) :] for line in out.splitlines() if "ingress" in line}
    assert [users[f"{what} at ingress"][protocols.index("icmp")] for what in ("refused", "waiting")] == [
        "0", WAITING[name],
    ]  # fmt: skip
    heads = [line.split() for line in out.splitlines() if set(protocols) <= set(line.split())]
    assert heads and heads[0][-len(protocols) :] == list(protocols)
