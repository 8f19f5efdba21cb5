"""Where the tokens of tokens.toml are at every height: at home, abroad, under way; their sum never changes.

python examples/tokens.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import causeway as cw

SCENARIO = Path(__file__).with_name("tokens.toml")
MODULES = ["hub-transfer", "east-transfer", "west-transfer", "north-transfer"]
EAST = 1


def heights(net: cw.LakeNetwork) -> Iterator[tuple[int, cw.TokenSupply]]:
    """Run the network tick by tick; yield each height and where the token of the east is. Raises ``SupplyBroken``."""
    while (tick := net.next_tick()) is not None:
        net.run(tick + 1)
        books = {number: cw.token_books(net.program_state(name)) for number, name in enumerate(MODULES)}
        yield net.height, cw.token_supply(books)[EAST, "amber"]


def main() -> None:
    """Print a line for every height at which something moved."""
    with cw.Network.from_scenario(SCENARIO, {"network.executor": "in_process"}) as net:
        before = None
        print("height   total    home  abroad  under way")
        for height, found in heights(net):
            if found != before:
                print(f"{height:6} {found.total:7} {found.home:7} {found.abroad:7} {found.under_way:10}")
            before = found


if __name__ == "__main__":
    main()
