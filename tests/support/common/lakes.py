"""Two real lakes, each with one zone of its own that the other declares as external, and the relay loop between them.

    with both(tmp_path, calls=5) as lakes:
        lakes.settle()                          # blocks until nothing in a lake moves of itself
        lakes.relay("left")                     # one pass to the left zone, every step answered from the lakes
        lakes.until_idle()
        lakes.received("right"), lakes.answered("left")

No sockets here: steps are answered by the same views that HTTP serves, and transactions go into the same mempool.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from causeway.core.vocabulary import Event, Kind
from causeway.network.network import program_state
from causeway.scenarios.scenario import load_scenario
from causeway.service.ibc.answers import ZoneOptionsAnswer
from causeway.service.ibc.relay_plan import RelaySettings
from causeway.service.ibc.relay_state import (
    PacketRelayMemory,
    ReadHeader,
    ReadLane,
    ReadPackets,
    ReadProofs,
    Step,
    SubmitWithHeaders,
    lane_view,
    read_rules,
)
from causeway.service.ibc.relayer import ZonePass, relay_pass
from causeway.service.ibc.routes import ZoneViews
from causeway.service.keys.key_files import AccountKey
from causeway.service.keys.signing import MESSAGE, TRANSACTION, SignedMessage, carrier_number, sign_message
from causeway.service.node.node import BlockPace, Node, SubmissionStatus
from causeway.service.relay.loop import Direction

ENDS = {"left": "a", "right": "b"}
OTHER = {"left": "right", "right": "left"}
PROGRAMS = (("caller-left", "left"), ("echo-left", "left"), ("caller-right", "right"), ("echo-right", "right"))


def key_of(number: int) -> AccountKey:
    """Return the key of a relayer or user of the tests."""
    return AccountKey(number.to_bytes(32, "big"))


def scenario_text(
    own: str,
    calls: int = 5,
    tick: int = 0,
    options: str = "",
    tick_seconds: float = 1.0,
    more: str = "",
    text: str = "",
    echo: str = "echo",
) -> str:
    """Return the scenario of one lake; both call each other ``calls`` times; ``more``: sections at its end;
    ``text``: what the calls carry, something short if empty; ``echo``: the program that answers."""
    lines = ["[network]", 'protocol = "ibc"', 'executor = "in_process"', "seed = 7"]
    lines += ["partitions = 1", f"seconds_per_tick = {tick_seconds}", "[options]", options]
    for chain in ENDS:
        lines += ["[[chains]]", f'name = "{chain}"', f"external = {'false' if chain == own else 'true'}"]
    for name, chain in PROGRAMS:
        kind = {"caller": "caller", "echo": echo}[name.split("-")[0]]
        lines += ["[[programs]]", f'name = "{name}"', f'chain = "{chain}"', f'program = "{kind}"']
    lines += ["[traffic]", 'source = "script"']
    for chain in ENDS if calls else ():
        call = f'{{receiver = "echo-{OTHER[chain]}", method = "hello", text = "{text or "from the " + chain}"}}'
        lines += ["[[traffic.send]]", f"tick = {tick}", f'to = "caller-{chain}"', f"count = {calls}", f"call = {call}"]
    return "\n".join([*lines, more]) + "\n"


class Lakes:
    """Both lakes; chains are named by the side they are on."""

    def __init__(self, folder: Path, **scenario: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.nodes: dict[str, Node] = {}
        for own in ENDS:
            path = folder / f"{own}.toml"
            path.write_text(scenario_text(own, **scenario))
            self.nodes[own] = Node(load_scenario(path), str(folder / own), BlockPace(0, on_demand=True))
        self.views = {own: ZoneViews(node.opened) for own, node in self.nodes.items()}
        self.rules = read_rules(ZoneOptionsAnswer.model_validate(self.views["left"].status()["options"]))
        self.submitted: list[SubmitWithHeaders] = []
        self._nonces: dict[tuple[str, bytes], int] = {}

    def signed(self, own: str, content: dict[str, Any], sender: AccountKey, chain: str = "") -> SignedMessage:
        """Return a message to a lake, or a transaction for a chain of it, as its sender signs it next."""
        node = self.nodes[own]
        nonce = max(self._nonces.get((own, sender.public), 0), node.senders.last(sender.public)) + 1
        self._nonces[own, sender.public] = nonce
        kind = TRANSACTION if chain else MESSAGE
        return sign_message(sender, node.opened.lake.identity, kind, chain, nonce, content)

    def send(self, own: str, content: dict[str, Any], sender: AccountKey | None = None) -> SubmissionStatus:
        """Send a user's message to a lake."""
        return self.nodes[own].take(self.signed(own, content, sender or key_of(0)))

    def submit(self, chain: str, relayer: int, transaction: bytes) -> SubmissionStatus:
        """Submit a relayer's transaction to a chain's lake."""
        content = {"transaction": transaction.hex()}
        return self.nodes[chain].take(self.signed(chain, content, key_of(relayer), chain))

    def settle(self, most: int = 1_000) -> None:
        """Make blocks on both as long as they have something to do."""
        for node in self.nodes.values():
            for _ in range(most):
                if not node.has_work:
                    break
                node.produce()

    def direction(self, target: str) -> Direction:
        """Return the direction to a chain."""
        return Direction(ENDS[OTHER[target]], OTHER[target], target)

    def steps(
        self, target: str, memory: PacketRelayMemory | None = None, **settings: Any
    ) -> Generator[Step, Any, ZonePass]:
        """Return the relay loop's pass to a chain, nothing of it made yet; ``memory``: of passes before."""
        return relay_pass(self.direction(target), self.rules, RelaySettings(**settings), memory)

    def answer(self, step: Step, relayer: int = 1) -> Any:
        """Answer a step, as HTTP would; a transaction waits for the next block."""
        views = self.views[step.chain]
        match step:
            case ReadLane():
                begin = step.packets_from, step.receipts_from
                return lane_view(views.lane(step.chain, step.counterparty, step.height, *begin))
            case ReadHeader():
                return bytes.fromhex(views.header(step.chain, step.height)["signed_header"])
            case ReadProofs():
                rows: list[Any] = []
                while len(rows) < len(step.keys):
                    rows += views.proofs(step.chain, list(step.keys)[len(rows) :], step.height)["proofs"]
                return [(bytes.fromhex(row["value"] or ""), bytes.fromhex(row["proof"])) for row in rows]
            case ReadPackets():
                place = (step.chain, step.counterparty, "send", step.first, step.count, step.height)
                return [bytes.fromhex(row["value"]) for row in views.entries(*place)["entries"]]
            case SubmitWithHeaders():
                self.submitted.append(step)
                self.submit(step.chain, relayer, step.transaction)
                return None

    def relay(
        self,
        target: str,
        relayer: int = 1,
        submit: Callable[[SubmitWithHeaders], None] | None = None,
        settle: bool = True,
        altered: Callable[[Step, Any], Any] | None = None,
        past: bool = True,
        **settings: Any,
    ) -> ZonePass:
        """Make one pass to a chain, and the blocks that take what it submits.

        ``submit``: is given transactions instead of the lake; ``altered``: returns what a lake answers instead;
        ``past``: whether lakes have kept how they were.
        """
        steps = self.steps(target, **settings)
        answer: Any = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                passed: ZonePass = end.value
                break
            if isinstance(step, SubmitWithHeaders) and submit is not None:
                submit(step)
                answer = None
            elif isinstance(step, ReadLane) and step.height is not None and not past:
                answer = None
            else:
                answer = self.answer(step, relayer)
                answer = answer if altered is None else altered(step, answer)
        if settle:
            self.settle()
        return passed

    def until_idle(self, most: int = 50, **settings: Any) -> int:
        """Make passes both ways until none submits anything; return how many did."""
        count = 0
        for _ in range(most):
            passed = [self.relay(target, **settings) for target in ENDS]
            if not any(one.transactions for one in passed):
                return count
            count += sum(bool(one.transactions) for one in passed)
        raise AssertionError(f"still something to do after {most} passes each way")

    # ---- what came of it

    def events(self, chain: str, bit: Event, kind: Kind) -> list[tuple[int, int]]:
        """Return (height, index in its queue) of the events of messages over the lane from the other chain."""
        node = self.nodes[chain]
        source = node.opened.position(OTHER[chain])
        found = []
        for path in node.network.lake.log_files("events"):
            for row in node.network.lake.storage.read_table(path).to_pylist():
                if row["kind"] == kind and row["events"] & bit and row["source"] == source:
                    found.append((row["height"], row["index"]))
        return found

    def received(self, chain: str) -> list[int]:
        """Return the indices of the packets that a chain received, in the order in which it did."""
        return [index for _, index in self.events(chain, Event.RECEIVED, Kind.REQUEST)]

    def answered(self, chain: str) -> list[int]:
        """Return the indices of the packets of a chain that ended with a receipt, in that order."""
        return [index for _, index in self.events(chain, Event.RECEIVED, Kind.RESPONSE)]

    def lane(self, chain: str) -> dict[str, Any]:
        """Return what a chain has for the other one."""
        return self.views[chain].lane(chain, OTHER[chain], None)

    def account(self, chain: str, relayer: int = 1) -> dict[str, int]:
        """Return a relayer's account with a chain."""
        rows = self.views[chain].relayers(chain, None)["relayers"]
        number = carrier_number(key_of(relayer).public)
        return next(({**row} for row in rows if row.get("number") == number), {})

    def refused(self, chain: str) -> dict[str, int]:
        """Return all refusals on a chain by error."""
        counts: dict[str, int] = {}
        for height in range(1, self.views[chain].height() + 1):
            for name, count in self.views[chain].refusals(chain, height)["refused"].items():
                counts[name] = counts.get(name, 0) + count
        return counts

    def outcome(self) -> dict[str, Any]:
        """Return what must not depend on who relayed how: queues, and the states of programs."""
        found: dict[str, Any] = {}
        for chain in ENDS:
            lane = self.lane(chain)
            found[chain] = [(lane[name]["head"], lane[name]["tail"]) for name in ("send", "receipt")]
        for name, chain in PROGRAMS:
            network = self.nodes[chain].network
            found[name] = program_state(network.lake, network.manifest, network.topology, name)
        return found

    def check(self, calls: int) -> None:
        """Assert that every call was received once, in order, and answered once, in order."""
        for chain in ENDS:
            assert self.received(chain) == list(range(calls))
            assert self.answered(chain) == list(range(calls))
            lane = self.lane(chain)
            assert (lane["send"]["head"], lane["send"]["tail"]) == (calls, calls)

    def close(self) -> None:
        """Let go of both lakes."""
        for node in self.nodes.values():
            node.close()


@contextmanager
def both(folder: Path, **scenario: Any) -> Iterator[Lakes]:
    """Give two lakes whose scripted calls are made, and wait for a relay."""
    lakes = Lakes(folder, **scenario)
    try:
        lakes.settle()
        yield lakes
    finally:
        lakes.close()
