"""What the small lakes of the protocols have in common: users who tell programs to call, and a run in this process."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from causeway.network.network import LakeNetwork

Send = tuple[str, str, str, int, int]
"""What a user tells a program in a tick: sender, receiver, method, how many calls, the amount of each."""


OUT_OF_ORDER = """
[network]
protocol = "ibc"
executor = "in_process"
[options]
order = "unordered"
[options.types.ask]
[options.types.echo]
[[chains]]
count = 2
[[programs]]
name = "alice"
chain = "chain-0"
program = "caller"
[[programs]]
name = "at_home"
chain = "chain-0"
program = "echo"
[[programs]]
name = "slow"
chain = "chain-1"
program = "fan_out"
options = { targets = [1] }
[[programs]]
name = "fast"
chain = "chain-1"
program = "echo"
[traffic]
source = "script"
send = [
  { tick = 0, to = "alice", call = { receiver = "slow", method = "ask" } },
  { tick = 1, to = "alice", call = { receiver = "fast", method = "echo" } },
]
"""
"""Two zones under ``ibc``: the program that is called first asks another zone before it answers, so it answers last."""


def user_calls(ticks: Iterable[int], sends: Iterable[Send]) -> str:
    """Return the part of a scenario's file in which a user makes all ``sends`` in each of ``ticks``."""
    sends = tuple(sends)
    return "".join(
        f'[[traffic.send]]\ntick = {tick}\nto = "{sender}"\ncount = {count}\n'
        f'call = {{ receiver = "{receiver}", method = "{method}", text = "tick {tick}", amount = {amount} }}\n'
        for tick in ticks
        for sender, receiver, method, count, amount in sends
    )


def lake_of(folder: Path, scenario: str, until: int | None = None) -> str:
    """Run a scenario (the content of its file) in ``folder``, to its end or to tick ``until``; return where its lake
    is."""
    path = folder / "scenario.toml"
    path.write_text(scenario)
    with LakeNetwork.from_scenario(path, lake=str(folder / "lake")) as network:
        network.run(until)
    return str(folder / "lake")
