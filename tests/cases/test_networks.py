"""Edge cases of protocol rules: run, audit and report agree."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from causeway.cli.shell import BAD_INPUT
from tests.cases.recorded import Judge, Reasons, reasons_of

PASSED, FAILED = 0, 1


@dataclass(frozen=True)
class Played:
    """A scenario and its expected verdict, exit code and findings."""

    scenario: str
    sentence: str = "PASSED"
    code: int = PASSED
    reasons: Reasons | None = None
    slow: bool = False


def scenario(protocol: str, options: str = "", chains: str = "[[chains]]\ncount = 2\n", **network: int) -> str:
    """Begin a scenario of a protocol."""
    more = "".join(f"{name} = {value}\n" for name, value in network.items())
    return f'[network]\nprotocol = "{protocol}"\nexecutor = "in_process"\n{more}[options]\n{options}{chains}'


def generated(**traffic: int) -> str:
    return '[traffic]\nsource = "generated"\n' + "".join(f"{name} = {value}\n" for name, value in traffic.items())


def fault(kind: str, begin: int, end: int | None, **about: str | int) -> str:
    keys = ("tick", "until") if kind == "fork" else ("from", "until")
    lines = [f"{key} = {value}" for key, value in zip(keys, (begin, end), strict=True) if value is not None]
    lines += [f"{name} = {json.dumps(value)}" for name, value in about.items()]
    return f'[[faults]]\nkind = "{kind}"\n' + "\n".join(lines) + "\n"


PAIR = """
[[programs]]
name = "alice"
chain = "chain-0"
program = "caller"
balance = 100
[[programs]]
name = "echo"
chain = "chain-1"
program = "echo"
"""


def calls(*ticks: int) -> str:
    """Let alice call echo once in each of some ticks."""
    sends = [
        f'{{ tick = {tick}, to = "alice", call = {{ receiver = "echo", method = "m", text = "at {tick} {n}" }} }}'
        for n, tick in enumerate(ticks)
    ]
    return f'[traffic]\nsource = "script"\nsend = [{", ".join(sends)}]\n'


def channel_call(tick: int, **about: str | int) -> str:
    own = {"chain": "chain-0", "foreign": "chain-1", **about}
    lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in own.items())
    return f"[[options.channel_calls]]\ntick = {tick}\n{lines}"


CHAINS = "[[chains]]\ncount = 2\n" + PAIR
SHORT = "archiving_depth = 2\nchallenge_period = 3\n"
EXPIRING = 'timeouts = "on"\ntimeout_seconds = 10\ncleanup = "on"\n'
CUT_OFF = fault("drop", 3, 20, source="chain-0", destination="chain-1") + generated(messages=40, ticks=12, channels=1)
OVERFLOWING = 'channels = "hrmp"\noverflow = "drop"\npages_per_block = 1\n'
THREE = "[[chains]]\ncount = 3\n"
HALTED = fault("halt", 30, 50, chain="chain-1") + generated(messages=900, ticks=60, channels=8)
RELAY = '[[chains]]\nname = "relay"\nrole = "relay"\n'
GONE = (
    '[[options.para_calls]]\ntick = 12\nchain = "chain-1"\ndo = "deregister"\n'
    '[[options.para_calls]]\ntick = 20\nchain = "chain-1"\ndo = "register"\n'
)
BEFORE_AND_AFTER = fault("halt", 4, 15, chain="chain-1") + calls(0, 2, 4, 6, 8, 10, 11, 14, 16, 18, 24, 30)
LOST_AS_DECLARED = "PASSED, 5 messages dropped as the protocol declares"

SCENARIOS = {
    "packets that expire, in order": Played(
        scenario("ibc", 'order = "ordered"\n' + EXPIRING, seed=7) + CUT_OFF,
    ),
    "packets that expire, in any order": Played(
        scenario("ibc", 'order = "unordered"\nacknowledgements = "synchronous"\n' + EXPIRING, seed=7) + CUT_OFF,
    ),
    "relayers that divide the packets, one of them stopped": Played(
        scenario(
            "ibc",
            'order = "unordered"\nrelayers = ["a", "b", "c"]\n'
            '[options.relay]\ncoordination = "partition"\nproofs = "single"\n',
            CHAINS,
        )
        + fault("drop", 0, 12, relayer="c") + calls(0, 2, 4, 6, 8, 10),
    ),
    "a queue that overflows": Played(
        scenario("icmp", OVERFLOWING, THREE, seed=9, seconds_per_tick=6) + HALTED,
        "FAILED: 24 violations of delivery", FAILED, {"delivery": {"dropped": 24}},
    ),
    "a queue with room": Played(
        scenario("icmp", OVERFLOWING + "drop_threshold = 1000\n", THREE, seed=9, seconds_per_tick=6) + HALTED,
        slow=True,
    ),
    "a parachain that is not registered for a while": Played(
        scenario("icmp", GONE, CHAINS) + BEFORE_AND_AFTER,
        LOST_AS_DECLARED, PASSED, {"delivery": {"dropped_as_declared": 5}},
    ),
    "the same over channels": Played(
        scenario("icmp", 'channels = "hrmp"\nsession_blocks = 3\n' + GONE, CHAINS) + BEFORE_AND_AFTER,
        LOST_AS_DECLARED, PASSED, {"delivery": {"dropped_as_declared": 5}}, slow=True,
    ),
    "a fork that ends in the tick of its healing": Played(
        scenario("icmp", "", CHAINS) + fault("fork", 3, 5, leaves=2, kept=1)
        + "[[changes]]\ntick = 6\nheal = true\n" + calls(0, 4, 8),
    ),
    "a halt of the relay chain that is healed before a fork": Played(
        scenario("icmp", "", RELAY + CHAINS) + fault("halt", 3, 8, chain="relay")
        + fault("fork", 4, 10, leaves=2, kept=1) + "[[changes]]\ntick = 6\nheal = [0]\n" + calls(0, 4, 8),
    ),
    "messages that are not relayed for a while": Played(
        scenario("xdm", "archiving_depth = 2\nchallenge_period = 5\n", THREE, seed=5)
        + fault("drop", 8, 60, source="chain-0", destination="chain-1") + generated(messages=60, ticks=10, channels=2),
        slow=True,
    ),
    "two channels between two domains": Played(
        scenario("xdm", SHORT + "max_outgoing_messages = 2\n" + channel_call(0, max_outgoing=2), CHAINS)
        + calls(*range(0, 28, 2)),
    ),
    "calls that overtake each other over two channels": Played(
        scenario("xdm", SHORT + "max_outgoing_messages = 1\n" + channel_call(60, max_outgoing=1), CHAINS)
        + calls(0, 120, 120, 160, 160), slow=True,
    ),
    "a channel that is opened again": Played(
        scenario(
            "xdm", SHORT + channel_call(90, do="close", channel=0) + channel_call(110), CHAINS,
        )
        + calls(0, 40, 150, 190), slow=True,
    ),
    "a reorganisation deeper than the challenge period": Played(
        scenario("xdm", "archiving_depth = 12\nchallenge_period = 1\n", CHAINS)
        + '[[faults]]\nkind = "reorg"\ntick = 22\ndepth = 11\n' + calls(0, 4, 8, 12, 16, 20, 24, 28), slow=True,
    ),
    "channels whose deposits cannot be paid": Played(
        scenario(
            "xdm",
            SHORT + 'channels = "initiate"\ninitiate_by = "signed"\nclose_by = "owner_or_root"\nendowment = 150\n'
            "channel_reserve_fee = 101\n"
            + channel_call(0, by="alice") + channel_call(0, by="alice") + channel_call(0, by="echo")
            + channel_call(0, chain="chain-1", foreign="chain-0", by="echo")
            + channel_call(1, do="close", channel=0, by="alice"),
            CHAINS.replace("balance = 100", "balance = 20"),
        )
        + calls(40),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if each.slow else name for name, each in SCENARIOS.items()]
)
def test_run_audit_and_report_agree(name: str, judge: Judge, tmp_path: Path) -> None:
    played = SCENARIOS[name]
    (tmp_path / "s.toml").write_text(played.scenario)
    code, out, err = judge.command("run", str(tmp_path / "s.toml"), "--lake", judge.lake)
    assert code == played.code, out + err
    assert any(line.startswith(played.sentence) for line in out.splitlines()), out
    code, found = judge.audit()
    assert (code, found["sentence"]) == (played.code, played.sentence)
    assert {name: own for name, own in reasons_of(found).items() if name != "exactly_once"} == (played.reasons or {})
    code, out, _ = judge.command("report", judge.lake, "--json")
    assert (code, json.loads(out)["sentence"]) == (played.code, played.sentence)


@pytest.mark.parametrize("blocks", [-1, 2**62 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64])
def test_overflowing_timeout_is_refused(blocks: int, judge: Judge, tmp_path: Path) -> None:
    options = f'timeouts = "on"\ntimeout_blocks = {blocks}\n'
    (tmp_path / "s.toml").write_text(scenario("ibc", options) + generated(messages=10, ticks=2))
    code, _, err = judge.command("run", str(tmp_path / "s.toml"), "--lake", judge.lake)
    assert code == BAD_INPUT and f"timeout_blocks: {blocks}: must be" in err.replace(f'"{blocks}"', str(blocks))
    assert not Path(judge.lake).exists()
