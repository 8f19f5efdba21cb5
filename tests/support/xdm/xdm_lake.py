"""A small network under xdm on a lake, made in this process: requests and responses over two domains and consensus.

``left`` and ``right`` are domains, ``farmers`` is the consensus chain. ``alice`` on ``left`` asks ``bob`` on ``right``
and ``dora`` on ``farmers``; ``carol`` on ``farmers`` asks ``bob``.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.common.small_lakes import lake_of, user_calls

TICKS = 4

SCENARIO = """
[network]
protocol = "xdm"
seed = 3
executor = "in_process"
commit_every = {commit_every}

[options]
archiving_depth = 3
challenge_period = 4
{options}

[[chains]]
name = "left"
[[chains]]
name = "right"
[[chains]]
name = "farmers"
role = "consensus"

[[programs]]
name = "alice"
chain = "left"
program = "caller"
balance = 1_000_000
[[programs]]
name = "bob"
chain = "right"
program = "echo"
[[programs]]
name = "carol"
chain = "farmers"
program = "caller"
balance = 1_000_000
[[programs]]
name = "dora"
chain = "farmers"
program = "echo"

[traffic]
source = "script"
"""

SENDS = (("alice", "bob", "echo", 3, 5), ("alice", "dora", "echo", 2, 0), ("carol", "bob", "echo", 1, 9))


def make_lake(
    folder: Path, *, ticks: int = TICKS, options: str = "", commit_every: int = 1, until: int | None = None
) -> str:
    """Run the scenario in ``folder`` to its end or to tick ``until``; return where its lake is."""
    scenario = SCENARIO.format(options=options, commit_every=commit_every)
    return lake_of(folder, scenario + user_calls(range(0, ticks, 2), SENDS), until)
