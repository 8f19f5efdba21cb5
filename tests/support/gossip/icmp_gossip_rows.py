"""What a step of the kernel of gossip gave, and the tables of its state, as plain rows of each node."""

from typing import Any

import numpy as np

from causeway.core.frame import Frame
from causeway.gossip.state import NO_INTEREST
from causeway.gossip.step_io import ANSWER, QUEUE, StepOutput
from causeway.protocols.relay_chain.errors import PeerVerdict as Code
from tests.support.gossip.icmp_gossip_kernel import rows_of


def by_node(out: StepOutput) -> dict[str, dict[int, list[tuple[Any, ...]]]]:
    """The rows of each node: of digests the bytes, of heads and labels those that count."""
    found: dict[str, dict[int, list[tuple[Any, ...]]]] = {}

    def put(kind: str, frame: Frame, *names: str) -> None:
        rows = found.setdefault(kind, {})
        columns = [_values(frame[name]) for name in names]
        for n, *values in zip(frame["node"].tolist(), *columns, strict=True):
            rows.setdefault(n, []).append(tuple(values))

    put("queues", out.queues, "peer", "topic", "root")
    put("got", out.got, "topic", "root")
    purged = sorted(_keys(out.purged))
    found["purged"] = {n: [(t, root) for m, t, root in purged if m == n] for n, _, _ in purged}
    put("disconnected", out.disconnected, "peer", "code")
    put("beneficial", out.beneficial, "peer", "topic", "root", "size")
    found["heads"] = {}
    for n, k, count, heads in zip(*(out.heads[name] for name in ("node", "peer", "count", "heads")), strict=True):
        found["heads"].setdefault(int(n), []).append((int(k), tuple(h.tobytes() for h in heads[: int(count)])))
    found["subscriptions"] = {}
    for n, k, labels in zip(*(out.subscriptions[name] for name in ("node", "peer", "labels")), strict=True):
        told = tuple(one for one in labels.tolist() if one != NO_INTEREST)
        found["subscriptions"].setdefault(int(n), []).append((int(k), told))
    found["verdicts"] = {}
    for n, k, kind, code, change in rows_of(out.verdicts, "node", "peer", "kind", "code", "change"):
        if kind == ANSWER or code == Code.NotConnected or (code == Code.OK and kind != QUEUE):
            assert change == 0
        else:
            found["verdicts"].setdefault(n, []).append((k, Code(code).name, change))
    for kind, frame, names in (
        ("sketches", out.sketches, ("peer", "capacity", "sketch")),
        ("more", out.more, ("peer", "capacity")),
        ("asks", out.asks, ("peer", "id")),
    ):
        put(kind, frame, *names)
    return found


def _keys(frame: Frame) -> list[tuple[int, bytes, bytes]]:
    return [*zip(frame["node"].tolist(), _values(frame["topic"]), _values(frame["root"]), strict=True)]


def _values(values: Any) -> list[Any]:
    if isinstance(values, np.ndarray) and values.ndim == 2 and values.dtype == np.uint8:
        return [row.tobytes() for row in values]
    if isinstance(values, np.ndarray) and values.ndim > 1:
        return [*values]
    return list(values.tolist() if isinstance(values, np.ndarray) else values.to_pylist())


def grouped(frame: Frame) -> dict[int, list[dict[str, Any]]]:
    columns = {name: _values(frame[name]) for name in frame.names}
    found: dict[int, list[dict[str, Any]]] = {}
    for at, n in enumerate(frame["node"].tolist()):
        found.setdefault(n, []).append({name: values[at] for name, values in columns.items()})
    return found
