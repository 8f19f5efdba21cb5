"""Two real lakes of one network of domains, and the relay loop between them.

The lake "near" runs the consensus chain ``main`` and the domain ``left``, the lake "far" the domains ``right`` and
``third``. No sockets here: steps are answered by the same views that HTTP serves, read by the same schemas, and
transactions go into the same mempool.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from causeway.network.network import program_state
from causeway.protocols.xdm.transactions import BlockHeader, Blocks
from causeway.scenarios.scenario import load_scenario
from causeway.service.http import answers
from causeway.service.keys.key_files import AccountKey
from causeway.service.keys.signing import MESSAGE, TRANSACTION, sign_message
from causeway.service.node.node import BlockPace, Node, SubmissionStatus
from causeway.service.relay.loop import Submit
from causeway.service.xdm.answers import (
    AnchorAnswer,
    BlocksAnswer,
    ChannelsAnswer,
    DomainStatusAnswer,
    FollowedAnswer,
    MessagesAnswer,
    ReceiptedAnswer,
    ReceiptsAnswer,
)
from causeway.service.xdm.relay_runner import directions_from_status
from causeway.service.xdm.relay_state import (
    ChainPair,
    LaneRelayMemory,
    ReadAnchor,
    ReadBlocks,
    ReadChannels,
    ReadFollowed,
    ReadMessages,
    ReadReceipted,
    ReadReceipts,
    Step,
)
from causeway.service.xdm.relayer import DomainPass, PassOutcome, relay_direction
from causeway.service.xdm.routes import DomainViews

ENDS = {"near": "a", "far": "b"}
LAKES = {end: lake for lake, end in ENDS.items()}
HOME = {"main": "near", "left": "near", "right": "far", "third": "far"}
PROGRAMS = {
    "treasury": ("main", "caller"),
    "alice": ("left", "caller"),
    "echo-left": ("left", "echo"),
    "bob": ("right", "caller"),
    "echo-right": ("right", "echo"),
    "carol": ("third", "caller"),
    "echo-third": ("third", "echo"),
}
BALANCE = 100_000

Altered = Callable[[Step, Any], Any]


def key_of(number: int) -> AccountKey:
    """Return the key of a relayer or user of the tests."""
    return AccountKey(number.to_bytes(32, "big"))


def scenario_text(lake: str, sends: str = "", options: str = "", more: str = "") -> str:
    """Return the scenario of one lake. ``sends``: sections of its traffic; ``more``: sections of both."""
    lines = ["[network]", 'protocol = "xdm"', 'executor = "in_process"', "seed = 5", "partitions = 1"]
    lines += ["[options]", "archiving_depth = 2", "challenge_period = 3", "endowment = 1_000", options]
    for chain, home in HOME.items():
        lines += ["[[chains]]", f'name = "{chain}"', f"external = {'false' if home == lake else 'true'}"]
        lines += ['role = "consensus"'] if chain == "main" else []
    for name, (chain, program) in PROGRAMS.items():
        lines += ["[[programs]]", f'name = "{name}"', f'chain = "{chain}"', f'program = "{program}"']
        lines += [f"balance = {BALANCE}"] if program == "caller" else []
    return "\n".join([*lines, more, "[traffic]", 'source = "script"', sends]) + "\n"


def sending(program: str, receiver: str, count: int = 1, tick: int = 0, method: str = "hello", amount: int = 0) -> str:
    """Return a section of traffic: ``program`` calls ``receiver`` so many times."""
    call = f'{{receiver = "{receiver}", method = "{method}", amount = {amount}}}'
    return f'[[traffic.send]]\ntick = {tick}\nto = "{program}"\ncount = {count}\ncall = {call}\n'


class DomainLakes:
    """Both lakes, and the relay process's directions between them."""

    def __init__(self, folder: Path, sends: dict[str, str], options: str = "", more: str = "") -> None:
        folder.mkdir(exist_ok=True)
        self.nodes: dict[str, Node] = {}
        for lake in ENDS:
            path = folder / f"{lake}.toml"
            path.write_text(scenario_text(lake, sends.get(lake, ""), options, more))
            self.nodes[lake] = Node(load_scenario(path), str(folder / lake), BlockPace(0, on_demand=True))
        self.views: dict[str, DomainViews] = {lake: node.views for lake, node in self.nodes.items()}
        status = {end: self.read(DomainStatusAnswer, self.views[LAKES[end]].status()) for end in ("a", "b")}
        self.ends = directions_from_status(status, {"a": "near", "b": "far"})
        self.memories = {str(way): LaneRelayMemory() for way in self.ends.directions}
        self.submitted: list[Submit] = []

    @staticmethod
    def read(model: type[answers.Model], content: Any) -> answers.Model:
        """Return what a view says as whoever asks reads it."""
        return answers.read_answer(model, json.dumps(content).encode())

    def signed(self, lake: str, content: dict[str, Any], sender: AccountKey, chain: str = "") -> Any:
        """Return a message to a lake, or a transaction for a chain of it, as its sender signs it next."""
        node = self.nodes[lake]
        kind = TRANSACTION if chain else MESSAGE
        self._nonce = getattr(self, "_nonce", 0) + 1
        return sign_message(sender, node.opened.lake.identity, kind, chain, self._nonce, content)

    def send(self, lake: str, content: dict[str, Any]) -> SubmissionStatus:
        """Send a user's message to a lake."""
        return self.nodes[lake].take(self.signed(lake, content, key_of(9)))

    def submit(self, lake: str, chain: str, transaction: bytes, relayer: int = 1) -> SubmissionStatus:
        """Submit a relayer's transaction to a chain at a lake."""
        return self.nodes[lake].take(self.signed(lake, {"transaction": transaction.hex()}, key_of(relayer), chain))

    def produce(self, count: int = 1) -> None:
        """Make blocks in both lakes."""
        for _ in range(count):
            for node in self.nodes.values():
                node.produce()

    def answer(self, step: Step) -> Any:
        """Answer a step, as HTTP would; a transaction waits for the next block."""
        lake = LAKES[step.end]
        views = self.views[lake]
        match step:
            case ReadFollowed():
                return self.read(FollowedAnswer, views.followed())
            case ReadBlocks():
                return self.read(BlocksAnswer, views.blocks(step.after))
            case ReadAnchor():
                return self.read(AnchorAnswer, views.anchor(step.under, step.domain))
            case ReadReceipted():
                return self.read(ReceiptedAnswer, views.receipted(step.domain))
            case ReadReceipts():
                return self.read(ReceiptsAnswer, views.receipts(step.chain, step.after))
            case ReadChannels():
                return self.read(ChannelsAnswer, views.channels(step.chain, step.counterparty, None))
            case ReadMessages():
                lanes = [(lane.channel, lane.response, lane.first) for lane in step.lanes]
                found = views.messages(step.chain, step.counterparty, step.block, lanes, step.most)
                return self.read(MessagesAnswer, found)
            case Submit():
                self.submitted.append(step)
                self.submit(lake, step.chain, step.transaction)
                return None

    def read_blocks(self, after: int | None) -> Blocks:
        """Return the blocks of the consensus chain after one, as they are carried."""
        found = self.read(BlocksAnswer, self.views["near"].blocks(after))
        headers = [BlockHeader(one.parent, one.number, one.state_root, one.extrinsics_root) for one in found.headers]
        return Blocks(tuple(headers), found.signature)

    def relay(self, direction: ChainPair, altered: Altered | None = None) -> DomainPass:
        """Make one pass. ``altered``: returns what a lake answers instead."""
        steps = relay_direction(direction, self.ends.place, self.memories[str(direction)], self.ends.domains)
        answer: Any = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                passed: DomainPass = end.value
                return passed
            answer = self.answer(step)
            answer = answer if altered is None else altered(step, answer)

    def around(self, altered: Altered | None = None) -> list[DomainPass]:
        """Make one pass in every direction, then a block in both lakes; return what the passes of messages were."""
        passed = [(way, self.relay(way, altered)) for way in self.ends.directions]
        self.produce()
        return [found for way, found in passed if way.what == "messages"]

    def until_idle(self, most: int = 200) -> int:
        """Go on until nothing is left to bring, and all local answers are in; return how many rounds it took."""
        idle = 0
        for round_number in range(most):
            rests = all(passed.state is PassOutcome.IDLE for passed in self.around()) and not self._outstanding()
            idle = idle + 1 if rests else 0
            if idle == 3:
                return round_number
        raise AssertionError(f"still something to do after {most} rounds")

    def _outstanding(self) -> bool:
        for lake, views in self.views.items():
            for chain, home in HOME.items():
                for other in HOME:
                    if home == lake and other != chain:
                        rows = views.channels(chain, other, None)["channels"]
                        if any(row["count"] for row in rows):
                            return True
        return False

    def program(self, name: str) -> Any:
        """Return the state of a program."""
        lake = HOME[PROGRAMS[name][0]]
        network = self.nodes[lake].network
        return program_state(network.lake, network.manifest, network.topology, name)

    def events(self, lake: str, reason: bool = False) -> list[dict[str, Any]]:
        """Return the rows of a lake's log of events; ``reason``: only those that have one."""
        node = self.nodes[lake]
        found = []
        for path in node.network.lake.log_files("events"):
            found += node.network.lake.storage.read_table(path).to_pylist()
        return [row for row in found if row["reason"]] if reason else found

    def refusals(self, lake: str) -> dict[str, int]:
        """Return how often each reason stands in a lake's events."""
        found: dict[str, int] = {}
        for row in self.events(lake, reason=True):
            reason = row["reason"]
            found[reason] = found.get(reason, 0) + 1
        return found

    def close(self) -> None:
        """Let go of both lakes."""
        for node in self.nodes.values():
            node.close()


@contextmanager
def both(folder: Path, sends: dict[str, str] | None = None, **scenario: Any) -> Iterator[DomainLakes]:
    """Give both lakes while the body runs."""
    lakes = DomainLakes(folder, sends or {}, **scenario)
    try:
        yield lakes
    finally:
        lakes.close()
