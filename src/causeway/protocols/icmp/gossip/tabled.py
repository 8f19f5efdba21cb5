"""The state of nodes as tables, digests for numbers, and back: to keep it, to compare it, to cut and to join it.

Tables with a column ``node`` are of nodes; ``blocks``, ``listed`` and ``roots`` are the same for all that have them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame
from causeway.model.joins import lookup
from causeway.model.order import Rows, distinct
from causeway.proofs.hashing import Digests
from causeway.proofs.substrate.gossip import MAX_CHAIN_HEADS
from causeway.protocols.icmp.gossip.listed import NO_LABELS, Listed
from causeway.protocols.icmp.gossip.numbers import places, texts, united
from causeway.protocols.icmp.gossip.state import GossipState, Own, compacted


def tables(state: GossipState) -> dict[str, Frame]:
    """Return the state as tables (2.5), each in the order of its columns.

    Of nodes: ``nodes``, ``peers`` and ``banned`` as in the state, ``leaves`` (``node``, ``place``, ``hash``), ``own``
    (``node``, ``hash``: blocks of which it keeps the topics), ``pool`` (``node``, ``root``, ``topic``), ``seen``
    (``node``, ``peer``, ``root``, ``topic``, ``flags``); what follows from these: ``topics`` (``node``, ``topic``) and
    ``expected`` (``node``, ``root``, ``topic``). Of all: ``blocks`` (``hash``, ``number``, ``ancestors``), ``listed``
    (``block``, ``root``, ``topic``), ``labels`` (``topic``, ``label``: with ``from_to``), ``roots``
    (``root``, ``size``: of bodies in pools).
    """
    state = compacted(state)
    listed, own, node = state.listed, state.own, state.nodes["node"]
    found: dict[str, Frame] = {"nodes": state.nodes, "peers": state.peers, "banned": state.banned}
    row, place = (state.leaf != listed.nothing).nonzero()
    found["leaves"] = _frame(node=node[row], place=place, hash=listed.blocks[state.leaf[row, place]])
    row, block = own.blocks.nonzero()
    found["own"] = _frame(node=node[row], hash=listed.blocks[block])
    row, topic = own.live[own.set_of].nonzero()
    found["topics"] = _frame(node=node[row], topic=listed.topics[topic])
    for name, mask in (("expected", own.expected[own.set_of]), ("pool", state.pool)):
        row, queue = mask.nonzero()
        if name == "expected":
            mine = state.expects(row, queue)
            row, queue = row[mine], queue[mine]
        found[name] = _frame(node=node[row], **_queues(listed, queue))
    row, queue = state.seen.nonzero()
    peers = {name: state.peers[name][row] for name in ("node", "peer")}
    found["seen"] = _frame(**peers, **_queues(listed, queue), flags=state.seen[row, queue])
    found["blocks"] = _frame(hash=listed.blocks, number=listed.heights, ancestors=listed.ancestors)
    block, queue = listed.lists.nonzero()
    found["listed"] = _frame(block=listed.blocks[block], **_queues(listed, queue))
    root = np.unique(listed.root_of[state.pool.any(axis=0)])
    found["labels"] = _frame(topic=listed.topics[: len(listed.labels)], label=listed.labels)
    found["roots"] = _frame(root=listed.roots[root], size=state.sizes[root])
    return found


def _frame(**columns: npt.NDArray[np.generic]) -> Frame:
    return Frame(columns)


def _queues(listed: Listed, queue: Rows) -> dict[str, Digests]:
    return {"root": listed.roots[listed.root_of[queue]], "topic": listed.topics[listed.topic_of[queue]]}


def of_tables(frames: Mapping[str, Frame]) -> GossipState:
    """Return the state that has these ``tables``; rows of nodes in any order, those of all any number of times."""
    nodes = frames["nodes"].take(np.argsort(frames["nodes"]["node"], kind="stable"))
    peers, banned = (
        rows.take(np.lexsort((rows["peer"], rows["node"]))) for rows in (frames["peers"], frames["banned"])
    )
    listed = listed_of(frames)

    def at(name: str) -> Rows:
        return lookup(nodes, frames[name], ("node",))

    leaf = np.full((len(nodes), MAX_CHAIN_HEADS), listed.nothing, dtype=np.int64)
    leaves = frames["leaves"]
    leaf[at("leaves"), leaves["place"]] = places(listed.blocks, leaves["hash"])
    blocks = np.zeros((len(nodes), listed.nothing + 1), dtype=bool)
    blocks[at("own"), places(listed.blocks, frames["own"]["hash"])] = True
    pool = np.zeros((len(nodes), len(listed.root_of)), dtype=bool)
    pool[at("pool"), _numbers(listed, frames["pool"])] = True
    seen = np.zeros((len(peers), len(listed.root_of)), dtype=np.uint8)
    rows = lookup(peers, frames["seen"], ("node", "peer"))
    seen[rows, _numbers(listed, frames["seen"])] = frames["seen"]["flags"]
    sizes = np.zeros(len(listed.roots), dtype=np.uint64)
    sizes[places(listed.roots, frames["roots"]["root"])] = frames["roots"]["size"]
    return GossipState(Own(blocks, listed), nodes, leaf, pool, sizes, peers, seen, banned)


def _numbers(listed: Listed, queues: Frame) -> Rows:
    return listed.queue_numbers(places(listed.roots, queues["root"]), places(listed.topics, queues["topic"]))


def listed_of(frames: Mapping[str, Frame]) -> Listed:
    """Return what the ``blocks`` of the tables list, with the queues of ``pool`` and the roots of ``seen``."""
    _, first = np.unique(texts(frames["blocks"]["hash"]), return_index=True)
    blocks = frames["blocks"].take(first)
    rows = frames["listed"]
    queues = [frames[name] for name in ("listed", "pool", "seen")]
    roots, topics = (united(*(some[name] for some in queues)) for name in ("root", "topic"))
    width = max(len(roots), 1)
    named = [places(topics, some["topic"]) * width + places(roots, some["root"]) for some in queues]
    codes = distinct(np.concatenate(named))
    lists = np.zeros((len(blocks) + 1, len(codes)), dtype=bool)
    lists[places(blocks["hash"], rows["block"]), codes.searchsorted(named[0])] = True
    numbers = {"root_of": codes % width, "topic_of": codes // width}
    labels, told = NO_LABELS, frames.get("labels")
    if told is not None and len(told):
        labels = np.empty(len(topics), dtype=np.uint64)
        labels[places(topics, told["topic"])] = told["label"]
    columns = {"roots": roots, "topics": topics, "lists": lists, "labels": labels, **numbers}
    return Listed(blocks["hash"], blocks["number"], blocks["ancestors"], **columns)
