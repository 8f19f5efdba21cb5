"""Violations planted in the files of lakes: the derived ledger shows each, and no other.

Log rows are copied, moved and removed as no run would write them; seals and digests of manifests fit.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from causeway.cli.app import build_app
from causeway.cli.shell import FAILED, OK, execute
from causeway.storage.lake import Lake
from tests.chance_lakes import chance_lake
from tests.ledger.test_planting_lakes import derive_case
from tests.planting.judging import LIMIT, named
from tests.planting.traffic import Named, Traffic, key_of
from tests.resealed import replace
from tests.spec.audit.ledger import Message, Row
from tests.support.properties.audit_ledgers import Case

Edit = Callable[[pa.Table, int], pa.Table]


def rewrite(lake: str, row: Row, edit: Edit) -> bool:
    """Alter the log row of a ledger row in its file; return whether it could be altered."""
    opened = Lake.at(lake)
    chain = [each["name"] for each in json.loads((Path(lake) / "lake.json").read_text())["chains"]].index(row["chain"])
    for path, seal in opened.log_files(row["source_file"], range(opened.last_height() + 1)).items():
        rows = opened.sealed_table(path, seal)
        owner = "chain" if "chain" in rows.column_names else "source"
        own = pc.and_(pc.equal(rows["height"], row["height"]), pc.equal(rows[owner], chain)).to_pylist()
        places = [place for place, is_own in enumerate(own) if is_own]
        if len(places) >= row["log_row"]:
            altered = edit(rows, places[row["log_row"] - 1])
            if altered is rows:
                return False
            replace(Path(lake), {path: altered})
            return True
    return False


def moved(rows: pa.Table, place: int, heights: range, *, kept: bool) -> pa.Table:
    """A row at the nearest of some heights as a copy or instead; the table itself if it has none of these heights."""
    row = rows.slice(place, 1).to_pylist()[0]
    ticks = dict(zip(rows["height"].to_pylist(), rows["tick"].to_pylist(), strict=True))
    known = sorted((height for height in ticks if height in heights), key=lambda height: abs(height - row["height"]))
    if not known:
        return rows
    row["height"], row["tick"] = known[0], ticks[known[0]]
    left = rows if kept else pa.concat_tables([rows.slice(0, place), rows.slice(place + 1)])
    both = pa.concat_tables([left, pa.Table.from_pylist([row], rows.schema)], promote_options="permissive")
    order = pc.sort_indices(both["height"])  # stable: the new row is the last one of its height
    return both.cast(rows.schema).take(order).unify_dictionaries()


def twice(net: Traffic, message: Message) -> tuple[Row, Edit] | None:
    """It is received again, later."""
    row = message.first("received")
    return row, lambda rows, place: moved(rows, place, range(row["height"] + 1, 2**32), kept=True)


def early(net: Traffic, message: Message) -> tuple[Row, Edit] | None:
    """It is received before it was sent."""
    row, sent = message.first("received"), message.first("sent")
    if row["chain"] == sent["chain"]:
        return None
    return row, lambda rows, place: moved(rows, place, range(sent["height"]), kept=False)


def without(rows: pa.Table, place: int) -> pa.Table:
    return pa.concat_tables([rows.slice(0, place), rows.slice(place + 1)])


def unsent(net: Traffic, message: Message) -> tuple[Row, Edit] | None:
    """The last message of a lane was never sent."""
    sent = message.first("sent")
    if message is not net.by_lane[message.lane][-1] or sent["source_file"] != "outbound":
        return None
    return sent, without


REASONS = {"twice": {"received_again"}, "early": {"received_before_sent"}, "unsent": {"not_sent", "not_sent_yet"}}


def plant_in_files(lake: str, honest: Case, kind: Any, random: Random) -> Message | None:
    """Alter the files of a lake at a random position; return the message with the violation."""
    net = Traffic(honest)
    for message in net.messages(random, "sent", "received"):
        planned = kind(net, message) if message.index is not None and message.first("received") else None
        if planned and planned[0]["source_file"] in ("events", "outbound") and rewrite(lake, planned[0], planned[1]):
            return message
    return None


SEEDS = {"ic": 2, "ibc": 5, "xdm": 11, "icmp": 5}
"""Lakes committed at once, so that one file has all heights."""


SLOW = [
    pytest.param(protocol, marks=pytest.mark.slow) if protocol in ("ibc", "xdm") else protocol for protocol in SEEDS
]


@pytest.fixture(scope="module", params=SLOW)
def honest_lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Case]:
    """An honest lake, and its ledger."""
    lake = chance_lake(tmp_path_factory.mktemp("lake"), request.param, SEEDS[request.param])
    return lake, derive_case(lake)


def test_lake_without_planted_violations_passes(honest_lake: tuple[str, Case]) -> None:
    lake, honest = honest_lake
    assert not named(honest.audit(1, LIMIT), "violated")
    assert execute(["audit", lake], build_app, "causeway") == OK


@pytest.mark.parametrize("kind", [twice, early, unsent])
def test_violations_planted_in_files_are_named_and_fail_the_command(
    honest_lake: tuple[str, Case], kind: Any, tmp_path: Path
) -> None:
    random = Random(kind.__name__)
    honest, lake = honest_lake[1], str(tmp_path / "lake")
    shutil.copytree(honest_lake[0], lake)
    message = plant_in_files(lake, honest, kind, random)
    assert message is not None
    violated: set[Named] = named(derive_case(lake).audit(1, LIMIT), "violated")
    own = {each for each in violated if each[3:] == (message.lane, key_of(message))}
    assert {each[2] for each in own} & REASONS[kind.__name__]
    ids = {row["message_id"] for row in message.rows} | {row["answers"] for row in message.rows}
    others = {each for each in violated - own if each[0] != "watermarks"}
    related = {
        (other.lane, key_of(other))
        for other in Traffic(honest).ledger.messages
        if ids & ({row["message_id"] for row in other.rows} | {row["answers"] for row in other.rows}) - {None}
    }
    assert {each[3:] for each in others} <= related, others - {each for each in others if each[3:] in related}
    assert execute(["audit", lake], build_app, "causeway") == FAILED


def larger(rows: pa.Table, place: int) -> pa.Table:
    """2**64 more of it moves."""
    row = rows.slice(place, 1).to_pylist()[0]
    one = pa.Table.from_pylist([{**row, "amount_high": row["amount_high"] + 1}], rows.schema)
    return pa.concat_tables([rows.slice(0, place), one, rows.slice(place + 1)]).unify_dictionaries()


@pytest.mark.slow
@pytest.mark.parametrize(("end", "edit"), [("from", larger), ("to", without)])
def test_value_not_sent_by_its_chain_is_named(end: str, edit: Edit, tmp_path: Path) -> None:
    lake = chance_lake(tmp_path, "xdm", SEEDS["xdm"])
    moves = [row for row in derive_case(lake).value if row[end].startswith("abroad:") and row["amount"]]
    row = Random(end).choice(moves)
    assert rewrite(lake, row, edit)
    pair = tuple(sorted((row["chain"], row[end].removeprefix("abroad:"))))
    found = {("conservation", "violated", "more_came_than_left", (None, *pair, None), None)}
    assert named(derive_case(lake).audit(3, LIMIT), "violated") == found
    assert execute(["audit", lake], build_app, "causeway") == FAILED
