"""Networks under load in which every subnet is split once, each at a tick of its own."""

from __future__ import annotations

from random import Random

from tests.support.properties.random_scenarios import SPLITTING, dump

BALANCE = 1_000_000


def split_network(subnets: int, calls: int, seed: int, *, ticks: int = 30, certification: str = "off") -> str:
    """Return a scenario, as a file.

    Each of so many ``subnets`` has three callers and three echoes, and half of its programs, drawn, go to a new subnet
    at a tick that is drawn. Users ask callers for ``calls`` calls in all, in ``ticks`` ticks; a call has an amount.
    """
    random = Random(seed)
    names = [f"subnet-{number}" for number in range(subnets)]
    chains: list[dict[str, object]] = [{"name": name} for name in names]
    programs, splits = [], []
    for name in names:
        kinds = [(f"{name}-{kind}-{row}", kind) for kind in ("caller", "echo") for row in range(3)]
        programs += [{"name": own, "chain": name, "program": kind, "balance": BALANCE} for own, kind in kinds]
        tick = random.randrange(1, ticks)
        going = random.sample([own for own, _ in kinds], 3)
        chains.append({"name": f"{name}-new", "from": tick})
        splits.append({"tick": tick, "chain": name, "into": f"{name}-new", "programs": going})
    sends: list[dict[str, object]] = []
    left = calls
    while left:
        one, other = random.choice(names), random.choice(names)
        count = min(left, random.choice((1, 2, 5)))
        left -= count
        call = {
            "receiver": f"{other}-echo-{random.randrange(3)}",
            "amount": random.randrange(5),
            "text": f"call {left}",
        }
        to = f"{one}-caller-{random.randrange(3)}"
        sends.append({"tick": random.randrange(ticks), "to": to, "count": count, "call": call})
    return dump(
        {
            "network": {"protocol": "ic", "seed": seed, "executor": "in_process", "commit_every": 64},
            "options": {"certification": certification, **SPLITTING},
            "chains": chains,
            "programs": programs,
            "splits": splits,
            "traffic": {"source": "script", "send": sorted(sends, key=lambda send: int(str(send["tick"])))},
        }
    )
