"""Whole networks of the Internet Computer protocol, in process: what a program, a fault or a number cannot do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from causeway.model.errors import InvalidInput
from causeway.model.frame import Frame
from causeway.model.ledger import Event
from causeway.network.network import Network
from causeway.pipeline import bucket
from causeway.pipeline.tables import LakeTables
from causeway.programs import Effects, Program, VectorProgram
from causeway.programs.scalar import Context, Ingress, Request

HERE = "tests.pipeline.test_ic_networks"
BASE = '[network]\nprotocol = "ic"\nexecutor = "in_process"\n' + "".join(f'[[chains]]\nname = "{c}"\n' for c in "ABC")
CALLER = '[[programs]]\nname = "caller"\nchain = "A"\nprogram = "caller"\nbalance = 1000\n'
ECHO = '[[programs]]\nname = "echo"\nchain = "B"\nprogram = "echo"\n'
SCRIPT = '[traffic]\nsource = "script"\n'
NETWORK = BASE + CALLER + ECHO


class Leaves(Program):
    """Raises what is no ``Exception``."""

    def on_request(self, request: Request, context: Context) -> bytes:
        sys.exit(3)


class Loose(VectorProgram):
    """Starts with a state whose column is not of the type its schema says."""

    schema: ClassVar[pa.Schema] = pa.schema(
        [pa.field("canister", pa.uint64(), nullable=False), pa.field("seen", pa.uint32(), nullable=False)]
    )

    def initial_state(self, instances: Any) -> Frame:
        return Frame({"canister": instances, "seen": np.zeros(len(instances), dtype=np.int64)})

    def handle(self, batch: Frame, state: Frame) -> Effects:
        return Effects(state)


class Mean(VectorProgram):
    """Keeps a float."""

    schema: ClassVar[pa.Schema] = pa.schema(
        [pa.field("canister", pa.uint64(), nullable=False), pa.field("mean", pa.float64(), nullable=False)]
    )


class Hoard(Program):
    """Accepts all cycles, and gives them away when a user says to whom."""

    def on_request(self, request: Request, context: Context) -> tuple[bytes, int]:
        return b"", request.cycles

    def on_ingress(self, message: Ingress, context: Context) -> None:
        context.call(int(message.payload), "take", cycles=context.balance)


def program(name: str, chain: str, of: str, balance: int = 0) -> str:
    return f'[[programs]]\nname = "{name}"\nchain = "{chain}"\nprogram = "{of}"\nbalance = "{balance}"\n'


def call(to: str = "echo", *, tick: int = 0, count: int = 1) -> str:
    content = f'{{ receiver = "{to}", method = "m", text = "hi" }}'
    return f'[[traffic.send]]\ntick = {tick}\nto = "caller"\ncount = {count}\ncall = {content}\n'


def send(to: str, text: str, *, tick: int = 0) -> str:
    return f'[[traffic.send]]\ntick = {tick}\nto = "{to}"\nmethod = "go"\ntext = "{text}"\n'


def opened(folder: Path, text: str, *, resume: bool = False, **overrides: str) -> Network:
    folder.mkdir(exist_ok=True)
    (folder / "s.toml").write_text(text)
    return Network.from_scenario(folder / "s.toml", overrides, lake=str(folder / "lake"), resume=resume)


def rows(net: Network, table: str) -> list[dict[str, Any]]:
    return [row for path in net.lake.log_files(table) for row in net.lake.storage.read_table(path).to_pylist()]


def root(net: Network) -> str:
    return LakeTables(None, net.lake).root()  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _no_state_kept() -> Iterator[None]:
    bucket._STATES.clear()
    yield
    bucket._STATES.clear()


# ---- programs


def test_program_state_has_one_root_whether_it_was_kept_or_read_back(tmp_path: Path) -> None:
    text = BASE + CALLER + ECHO + program("loose", "B", f"{HERE}:Loose") + SCRIPT + call(count=3)
    straight = opened(tmp_path / "one", text)
    straight.run()
    opened(tmp_path / "two", text).run(ticks=1)
    bucket._STATES.clear()
    resumed = opened(tmp_path / "two", text, resume=True)
    resumed.run()
    assert root(resumed) == root(straight)


def test_program_state_of_floats_is_refused_when_it_is_deployed(tmp_path: Path) -> None:
    text = BASE + CALLER + program("echo", "B", f"{HERE}:Mean") + SCRIPT + call()
    with pytest.raises(InvalidInput, match="column mean is of type double; allowed: "):
        opened(tmp_path, text)


def test_a_balance_past_128_bits_does_not_end_the_network(tmp_path: Path) -> None:
    start = 10**38 - 1
    hoards = "".join(program(f"h{place}", "ABC"[place % 3], f"{HERE}:Hoard", start) for place in range(5))
    net = opened(tmp_path, BASE + hoards + SCRIPT + "".join(send(f"h{place}", "4", tick=place) for place in range(4)))
    net.run()
    manifest = net.lake.manifest(net.height)
    files = manifest.state["canisters"].values()
    states = [row for path in files for row in net.lake.storage.read_table(path).to_pylist()]
    words = ("balance_over", "balance_high", "balance_low")
    held = [sum(row[word] << 64 * (2 - place) for place, word in enumerate(words)) for row in states]
    assert sum(held) == 5 * start, "no value is lost"
    rejected = [row for row in rows(net, "events") if row["code"] == 5 and row["events"] & Event.RECEIVED]
    assert len(rejected) == 2, "the receiver holds three balances, and not more"


def test_a_handler_that_leaves_is_rejected(tmp_path: Path) -> None:
    net = opened(tmp_path, BASE + CALLER + program("echo", "B", f"{HERE}:Leaves") + SCRIPT + call())
    net.run()
    assert [row["code"] for row in rows(net, "events") if row["events"] & Event.ANSWERED] == [5]
