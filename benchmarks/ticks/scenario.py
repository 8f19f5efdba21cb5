"""The steady state of small ticks as a scenario: programs of the ``ping_pong`` kind that never stop playing."""

from __future__ import annotations

from dataclasses import dataclass

from causeway_proofs.errors import InvalidInput

SKIP = 7
"""Rallies go from a chain to the one this many further on, or the next one that is another."""

SCENARIO = """\
[network]
protocol = "{protocol}"
executor = "{executor}"
master = "{master}"

[[chains]]
count = {chains}
prefix = "chain-"

[[programs]]
per_chain = {per_chain}
prefix = "player-"
program = "ping_pong"

[traffic]
source = "script"
"""

DEFAULT = "bls"
"""States are certified so unless the option says otherwise; it is not written then: older revisions have none."""

OPTIONS = """
[options]
certification = "{certification}"
"""

RALLY = """
[[traffic.send]]
tick = {tick}
to = "player-chain-{home}-{number}"
call = {{ receiver = "player-chain-{away}-{number}", method = "ping", text = "{text}" }}
"""


@dataclass(frozen=True)
class SmallTicks:
    """As many rallies as ``messages``: half begin at tick 0, half at tick 1, and each has one message under way."""

    messages: int = 100
    chains: int = 40
    programs: int = 20_000
    payload_bytes: int = 64

    def __post_init__(self) -> None:
        if self.messages < 1 or self.payload_bytes < 0:
            raise InvalidInput("messages, payload bytes: at least 1 and 0 are allowed")
        if self.chains < 2 or self.programs < self.chains or self.programs % self.chains:
            raise InvalidInput("chains, programs: at least 2 chains, and as many programs on each are allowed")

    def scenario(self, protocol: str, executor: str, master: str, certification: str = DEFAULT) -> str:
        """Return the scenario file; ``certification``: the option of the protocol ``ic``."""
        per_chain = self.programs // self.chains
        text = SCENARIO.format(
            protocol=protocol, executor=executor, master=master, chains=self.chains, per_chain=per_chain
        )
        if certification != DEFAULT:
            text += OPTIONS.format(certification=certification)
        skip = SKIP % self.chains or 1
        for rally in range(self.messages):
            home = rally % self.chains
            text += RALLY.format(
                tick=rally % 2,
                home=home,
                away=(home + skip) % self.chains,
                number=rally // self.chains % per_chain,
                text=f"{rally:0{self.payload_bytes}d}"[: self.payload_bytes],
            )
        return text
