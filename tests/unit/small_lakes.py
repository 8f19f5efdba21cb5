"""What the small lakes of the protocols have in common: users who tell programs to call, and a run in this process."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from causeway.network.network import Network

Send = tuple[str, str, str, int, int]
"""What a user tells a program in a tick: sender, receiver, method, how many calls, the amount of each."""


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
    with Network.from_scenario(path, lake=str(folder / "lake")) as network:
        network.run(until)
    return str(folder / "lake")
