"""Light clients in runs: validator sets that change, forks that relayers watch for, recovery by a zone's decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from causeway.network.network import Network
from causeway.pipeline import bucket
from causeway.protocols.ibc.options import IbcOptions, RotationOptions
from causeway.protocols.ibc.validator_sets import seats_at, validators_at
from tests.unit.ibc_calls import B, Net

ROTATING: dict[str, Any] = {"validators": 10, "rotation": {"every": 1, "replace": 1}}
"""Two blocks of the ten need seven members that are in both: three heights can be skipped over, four cannot."""


def why(net: Net) -> Counter[str]:
    """What the last block refused on B."""
    return Counter(reason for zone, reason in net.refusals() if zone == "B")


# ---- validator sets that change


def test_seats_go_round_in_an_order_that_is_drawn() -> None:
    options = IbcOptions(validators=7, rotation=RotationOptions(every=3, replace=2))
    for name in ("A", "B"):
        for height in range(0, 60):
            before, after = (seats_at(5, name, at, options) for at in (height, height + 1))
            changed = [after[seat] - before[seat] for seat in range(7) if after[seat] != before[seat]]
            assert changed == ([1, 1] if (height + 1) % 3 == 0 else []) and max(after) - min(after) <= 1
    assert len({seats_at(5, name, 3, options) for name in ("A", "B", "C", "D")}) > 1
    assert validators_at(5, "A", 2, options)[0].hash == validators_at(5, "A", 0, options)[0].hash
    assert validators_at(5, "A", 3, options)[0].hash != validators_at(5, "A", 0, options)[0].hash


def test_more_than_a_third_at_once_nobody_could_follow() -> None:
    with pytest.raises(ValidationError, match="replace = 2 of 4 validators; allowed: a third of them at most"):
        IbcOptions(validators=4, rotation=RotationOptions(every=1, replace=2))
    IbcOptions(validators=3, rotation=RotationOptions(every=1, replace=1))
    IbcOptions(validators=1, rotation=RotationOptions(every=0, replace=1))


def test_relayers_halve_the_way_to_a_header_that_is_unknown() -> None:
    # For six blocks nobody brings headers of A to B: by then all validators have been replaced, and some twice.
    net = Net(ROTATING, blocks=20, carriers=(("drop", "A", "B", 2, 7, None),)).ask().next(3)
    assert net.view()["B"]["trust"]["A"] == [0, 1]
    net.ask().next(5)
    assert net.view()["B"]["trust"]["A"] == [0, 1] and len(net.seen(B)) == 1
    net.next()
    # 8 on 1 is unknown, so 4; 8 on 4 is unknown, so 6.
    assert why(net) == {"NeedIntermediateHeader": 2}
    assert net.view()["B"]["trust"]["A"] == [0, 1, 4, 6, 8] and len(net.seen(B)) == 2
    assert net.state.relayers["headers"][1] == 1 + 5, "every header that was tried is paid for: 8, 4, 8, 6, 8"


SCENARIO = """
[network]
protocol = "ibc"
executor = "in_process"
partitions = 2
{options}
[[chains]]
name = "north"
[[chains]]
name = "east"
[[programs]]
name = "caller"
chain = "north"
program = "caller"
[[programs]]
name = "echo"
chain = "east"
program = "echo"
{faults}
[traffic]
source = "script"
"""


def ran(folder: Path, sends: Sequence[int], options: str, faults: str) -> Network:
    """A run on a lake: the caller on north asks the echo on east at these ticks."""
    call = 'to = "caller"\ncall = { receiver = "echo", method = "echo", text = "x" }'
    told = "".join(f"[[traffic.send]]\ntick = {tick}\n{call}\n" for tick in sends)
    (folder / "scenario.toml").write_text(SCENARIO.format(options=options, faults=faults) + told)
    bucket.forget_states()
    net = Network.from_scenario(folder / "scenario.toml", lake=str(folder / "lake"))
    net.run()
    return net


def reasons(net: Network) -> list[tuple[int, str]]:
    """(tick, why) of every refusal in the events of a lake."""
    rows = [row for path in net.lake.log_files("events") for row in net.lake.storage.read_table(path).to_pylist()]
    return sorted((row["tick"], row["reason"]) for row in rows if row["reason"])


def test_headers_between_are_read_from_the_lake(tmp_path: Path) -> None:
    options = "[options]\nvalidators = 10\n[options.rotation]\nevery = 1\n"
    drop = '[[faults]]\nkind = "drop"\nsource = "north"\ndestination = "east"\nfrom = 2\nuntil = 7\n'
    net = ran(tmp_path, [0, 3], options, drop)
    assert net.program_state("caller")["answered"] == 2
    # The packet finds one client too old, its receipt a block later the other.
    assert reasons(net) == [(8, "NeedIntermediateHeader")] * 2 + [(9, "NeedIntermediateHeader")] * 2
