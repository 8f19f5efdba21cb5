"""Altered traces: each is rejected in one line with its location, differs, or leaves the replay unchanged."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cbor2
import pytest
from causeway_proofs.errors import InvalidInput

from causeway.gossip.options import GossipOptions
from causeway.gossip.processes.replay import ReplayResult, replay_trace
from causeway.gossip.processes.trace import close_trace, open_trace
from tests.support.gossip.gossip_cores import Cores
from tests.tiers import sized

FIELDS = ["time", "left", "came", "leaves", "blocks", "kept", "declared", "arrived", "got", "bodies"]

UNCONFIRMED = {"time", "left", "came", "kept"}
"""Fields of which nothing in a trace confirms every value: a time between its neighbours, one who left that was not
there, a connection over which nothing came, own queues that no leaf lists and nobody got."""

Path_ = tuple[Any, ...]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an open trace of three nodes, one of them killed and restarted."""
    folder = tmp_path_factory.mktemp("whole") / "trace"
    cores = Cores(3, GossipOptions(purge_interval=21), folder)
    for height in range(4):
        cores.block()
        cores.run(4)
        if height == 1:
            cores.kill(1)
        if height == 2:
            cores.start(1)
    return folder


def replay(folder: Path) -> ReplayResult:
    return replay_trace(open_trace(folder))


def records(path: Path) -> list[Any]:
    data, found = path.read_bytes(), []
    while data:
        (length,) = struct.unpack_from("<I", data)
        found.append(cbor2.loads(data[4 : 4 + length]))
        data = data[4 + length :]
    return found


def write_records(path: Path, content: list[Any]) -> None:
    path.write_bytes(b"".join(struct.pack("<I", len(one)) + one for one in map(cbor2.dumps, content)))


def generate_alterations(item: Any) -> Iterator[tuple[Path_, Any]]:
    """Yield locations and replacements for all numbers, bytes, flags, lists and their elements."""
    if isinstance(item, bool):
        yield (), not item
    elif isinstance(item, int):
        yield from (((), value) for value in (item + 1, item - 1, item + 1_000, 2**62))
    elif isinstance(item, bytes):
        yield from (((), value) for value in (bytes([item[0] ^ 1]) + item[1:], item[:-1] + b"\x00", item[:-1]))
    elif isinstance(item, list):
        for at, part in enumerate(item):
            yield (), item[:at] + item[at + 1 :]
            yield (), item[: at + 1] + item[at:]
            yield from (((at, *path), value) for path, value in generate_alterations(part))
        yield (), item[::-1]
    elif isinstance(item, dict):
        for key, part in item.items():
            rest = {other: value for other, value in item.items() if other != key}
            yield (), rest
            yield from (((), rest | {value: part}) for _, value in generate_alterations(key))
            yield from (((key, *path), value) for path, value in generate_alterations(part))
    else:
        yield (), []


def put(item: Any, path: Path_, value: Any) -> Any:
    if not path:
        return value
    copied = item.copy()
    copied[path[0]] = put(item[path[0]], path[1:], value)
    return copied


def outcome(folder: Path) -> str:
    """Return a replay's result: ``holds`` (with received packets), ``differs``, or the rejection."""
    try:
        found = replay(folder)
    except InvalidInput as error:
        return str(error)
    return "differs" if found.different else f"holds of {found.received}"


@pytest.mark.parametrize("many", [20, pytest.param(sized(40, 80), marks=pytest.mark.slow)])
def test_altered_traces_are_rejected_or_differ(whole: Path, tmp_path: Path, many: int) -> None:
    folder = tmp_path / "trace"
    shutil.copytree(whole, folder)
    before, files = replay(folder), sorted(folder.glob("node-*"))
    content = {path: records(path) for path in files}
    places = [
        (path, row, where, value)
        for path, rows in content.items()
        for row, record in enumerate(rows)
        for where, value in generate_alterations(record)
        if put(record, where, value) != record
    ]
    assert len(places) > 3_000 and not before.different
    for path, row, where, value in random.Random(many).sample(places, many):
        rows = content[path]
        write_records(path, [*rows[:row], put(rows[row], where, value), *rows[row + 1 :]])
        said = outcome(folder)
        write_records(path, rows)
        if said == f"holds of {before.received}":
            if len(where) == 1 and FIELDS[where[0]] in ("declared", "arrived"):
                # Messages of several connections in one step have no order.
                assert value == rows[row][where[0]][::-1]
                continue
            assert row == 0 or FIELDS[where[0]] in UNCONFIRMED, (path.name, row, where, value)
        elif said.startswith("holds of "):
            # The last packet of a connection is missing: a shorter trace.
            assert FIELDS[where[0]] in ("declared", "arrived") and said < f"holds of {before.received}", (where, value)
        elif said != "differs":
            assert re.fullmatch(r"\S*/node-\S*: record \d+ is none of a trace: \w.*", said), said


def first_trace(folder: Path) -> Path:
    return folder / "node-000-life-1.trace"


def steps(change: Callable[[list[Any]], None]) -> Callable[[Path], None]:
    """Change the records of a life; the first one is its header."""

    def damage(folder: Path) -> None:
        rows = records(first_trace(folder))
        change(rows)
        write_records(first_trace(folder), rows)

    return damage


def first(rows: list[Any], field: str) -> Any:
    return next(row for row in rows[1:] if row[FIELDS.index(field)])[FIELDS.index(field)]


def later(rows: list[Any]) -> None:
    for row in rows[5:]:
        row[0] += 10**12


def no_purge(rows: list[Any]) -> None:
    rows[:] = [row for row in rows if row[0] != 21]


def as_number(rows: list[Any], field: str, at: int, value: Any) -> None:
    first(rows, field)[0][at] = value


def other_body(rows: list[Any]) -> None:
    bodies = first(rows, "bodies")
    root = min(bodies)
    bodies[root] = bodies[root].replace(root, bytes(32))


def back_again(rows: list[Any]) -> None:
    (peer, _), *_ = first(rows, "came")
    rows[2][2].append([peer, b"sessions"])


def one_session(rows: list[Any]) -> None:
    came = first(rows, "came")
    came[1][1] = came[0][1]


def flood(rows: list[Any]) -> None:
    declared = first(rows, "declared")
    declared += [declared[0]] * 5_000


def kept_alone(rows: list[Any]) -> None:
    kept = first(rows, "kept")
    next(row for row in rows[1:] if row[3] is None)[5] = kept


def same_leaf(rows: list[Any]) -> None:
    row = next(row for row in rows[1:] if row[3])
    row[3], row[4] = row[3] + row[3][:1], row[4] + row[4][:1]


def no_leaf(rows: list[Any]) -> None:
    next(row for row in rows[1:] if row[3] is None)[3] = []


def elder(rows: list[Any]) -> None:
    first(rows, "blocks")[0][2].append(bytes(32))


def neighbour_packet(rows: list[Any]) -> None:
    bodies = first(rows, "bodies")
    bodies[min(bodies)] = b"\x01\x01\x18" + bytes(6 * 32)


def pipe(folder: Path) -> None:
    (folder / "trace.json").unlink()
    os.mkfifo(folder / "trace.json")


def write_manifest(folder: Path, **given: Any) -> None:
    path = folder / "trace.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | given))


ALTERED: dict[str, tuple[Callable[[Path], object], str]] = {
    "times far forward": (steps(later), "record 5.*: time: .* without the purge"),
    "a purge that is missing": (steps(no_purge), "record .*: time: .* ms, without the purge at 21 ms"),
    "a size beyond all": (steps(lambda rows: as_number(rows, "kept", 1, 2**62)), "kept: 0: size: 4611686018427387904"),
    "another size of a queue": (
        steps(lambda rows: as_number(rows, "arrived", 4, 7)),
        "arrived: 0: size: 7, where another record has|bodies: .*: size",
    ),
    "more messages than a body has": (
        steps(lambda rows: as_number(rows, "arrived", 3, 99)),
        "messages: .* where another record has",
    ),
    "another number of a block": (steps(lambda rows: as_number(rows, "blocks", 1, 77)), "blocks: 0: .* another block"),
    "a body of another root": (steps(other_body), "bodies: .*: a packet of something else"),
    "six heads as a body": (steps(neighbour_packet), "bodies: .* 6 heads"),
    "no body": (steps(lambda rows: first(rows, "bodies").clear()), "bodies: of 0 queues; [1-9] were got"),
    "a peer that is no node": (steps(lambda rows: as_number(rows, "came", 0, 9)), "came: peer 9 is none"),
    "itself for a peer": (steps(lambda rows: as_number(rows, "came", 0, 0)), "came: peer 0 is none"),
    "who was there comes": (steps(back_again), "came: peer [12] was there"),
    "one session of two connections": (steps(one_session), "came: session .* another connection"),
    "more than a step takes": (steps(flood), "declared, arrived: 500. packets of peer"),
    "kept without leaves": (steps(kept_alone), "leaves: none, where there are"),
    "a leaf twice": (steps(same_leaf), "leaves: none at all, or one is there twice"),
    "leaves that are none": (steps(no_leaf), "leaves: none at all"),
    "kept twice": (steps(lambda rows: first(rows, "kept").extend(first(rows, "kept"))), "kept: one is there twice"),
    "an ancestor too many": (steps(elder), "blocks: 0: ancestors: 1; at most 0"),
    "malformed and read": (steps(lambda rows: as_number(rows, "arrived", 6, True)), "arrived: 0: malformed: true"),
    "a packet of who was not there": (
        steps(lambda rows: first(rows, "came").clear()),
        "declared, arrived: peer [12] is not there|came",
    ),
    "more heads than are listed": (steps(lambda rows: as_number(rows, "declared", 2, 4)), "declared: 0: count: 4"),
    "leaves without their blocks": (
        steps(lambda rows: first(rows, "blocks").clear()),
        "blocks: others than the leaves",
    ),
    "another node's life": (
        lambda folder: first_trace(folder).rename(folder / "node-002-life-2.trace"),
        "record 0.*node, life",
    ),
    "a life too many": (
        lambda folder: shutil.copy(first_trace(folder), folder / "node-000-life-3.trace"),
        "no life before",
    ),
    "a life that began in another": (
        lambda folder: write_records(
            first_trace(folder).with_name("node-000-life-2.trace"), [[0, 2, 30], *records(first_trace(folder))[6:]]
        ),
        "record .*: time: .* when life 2 had begun|came: session|is not there",
    ),
    "no name of a life": (lambda folder: (folder / "node-x.trace").touch(), "not a regular file that is named"),
    "a manifest without end": (pipe, "trace.json: not a regular file"),
    "a node twice": (lambda folder: write_manifest(folder, nodes=[0, 0, 1, 2]), "nodes: must ascend"),
    "nodes unsorted": (lambda folder: write_manifest(folder, nodes=[2, 1, 0]), "nodes: must ascend"),
    "no nodes": (lambda folder: write_manifest(folder, nodes=[]), "nodes: must ascend"),
    "nodes that are no list": (lambda folder: write_manifest(folder, nodes="012"), "nodes: must be a list"),
    "too many nodes": (
        lambda folder: write_manifest(folder, nodes=[*range(70_000)]),
        "nodes: must be a list of numbers below",
    ),
    "true for a node": (lambda folder: write_manifest(folder, nodes=[0, True, 2]), "nodes: must be a list"),
    "a key too many": (lambda folder: write_manifest(folder, more=1), "'more': no such key"),
    "options that processes do not have": (
        lambda folder: write_manifest(folder, options={"reconciliation": "minisketch"}),
        'options.reconciliation: .* only "off"',
    ),
}


@pytest.mark.parametrize("name", ALTERED)
def test_impossible_trace_records_are_rejected_by_name(whole: Path, tmp_path: Path, name: str) -> None:
    damage, said = ALTERED[name]
    folder = tmp_path / "trace"
    shutil.copytree(whole, folder)
    damage(folder)
    assert re.search(said, outcome(folder)), outcome(folder)


def test_noncanonical_bytes_are_rejected(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "trace"
    shutil.copytree(whole, folder)
    data = first_trace(folder).read_bytes()
    (length,) = struct.unpack_from("<I", data)
    first_trace(folder).write_bytes(struct.pack("<I", length + 1) + data[4 : 4 + length] + b"\x00" + data[4 + length :])
    assert "record 0 is none of a trace: its bytes are not as a node writes them" in outcome(folder)


def test_bit_flips_in_a_closed_trace_are_detected(whole: Path, tmp_path: Path) -> None:
    folder, draw = tmp_path / "trace", random.Random(1)
    shutil.copytree(whole, folder)
    assert not replay(folder).closed
    close_trace(folder)
    assert replay(folder).closed and outcome(folder).startswith("holds")
    for path in [*folder.iterdir()] * 12:
        data = path.read_bytes()
        at = draw.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :])
        with pytest.raises(InvalidInput) as found:
            open_trace(folder)
        assert path.name in str(found.value) and "\n" not in str(found.value)
        path.write_bytes(data)
    # An early end counts as a kill only if it existed when the trace was closed.
    first_trace(folder).write_bytes(first_trace(folder).read_bytes()[:-3])
    assert "was altered" in outcome(folder)
    first_trace(folder).unlink()
    assert "files: others than" in outcome(folder)
