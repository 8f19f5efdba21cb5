"""A row a message: its names, its steps, its outcome and its delays."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from causeway.audit.columns import KINDS, NO_HEIGHT, NO_TIME
from causeway.figures.delays import MEASURES, MICROSECONDS, SECONDS, delays_of
from causeway.figures.outcomes import Outcomes, strings
from causeway.figures.places import NO_TICK, Places
from causeway.ledger.limbs import amount_texts
from causeway.ledger.outcomes import OUTCOMES
from causeway.ledger.schema import LANE, LIMBS

STEPS = ("sent", "received", "executed", "ended")
_TIME = pa.timestamp("us", "UTC")
_SAID = ("message_id", "answers", "journey", "sender", "receiver", "asset")

MESSAGES_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in LANE),
        *(("index", pa.uint64()), ("message_id", pa.string())),
        *((name, pa.string()) for name in ("answers", "journey")),
        *(pa.field(name, pa.string(), nullable=False) for name in ("kind", "outcome")),
        *(("code", pa.int64()), ("detail", pa.string())),
        *((name, pa.string()) for name in ("sender", "receiver", "asset", "amount")),
        *(
            (f"{step}_{name}", kind)
            for step in STEPS
            for name, kind in (("chain", pa.string()), ("height", pa.uint64()), ("tick", pa.uint64()), ("time", _TIME))
        ),
        *((f"{measure}_{unit}", pa.float64() if unit == SECONDS else pa.int64()) for measure, unit in MEASURES),
    ]
)
"""A row a message. ``kind``: ``Kind``; ``outcome``: ``Outcome``, with the ``code`` and ``detail`` that were said of it.
``sent``, ``received``, ``executed``: where that happened first; ``ended``: where the chain that it comes from knew its
outcome. ``delivery``: from sending to receipt; ``service``: from receipt to execution; ``round_trip``: from sending to
the answer, where it was sent from, in heights if that is one chain. ``amount``: decimal digits."""


def messages_of(outcomes: Outcomes) -> pa.Table:
    """Return a row a message (``MESSAGES_SCHEMA``), in the order of the ledger."""
    columns, base = outcomes.columns, outcomes.base
    lanes = pa.array(outcomes.lane)
    content: dict[str, Any] = {name: names.take(lanes) for name, names in columns.lane_names.items()}
    content["index"] = pa.array(columns.index[base], mask=columns.indexed[base] == 0)
    content |= {name: outcomes.first_seen(name).cast(pa.string()) for name in _SAID}
    content["kind"] = strings(KINDS, outcomes.kind)
    content["outcome"] = strings(OUTCOMES, outcomes.outcome)
    has_code, code = outcomes.codes
    content["code"] = pa.array(code, mask=~has_code)
    content["detail"] = strings(*outcomes.details)
    content["amount"] = amount_texts([outcomes.first_seen(name) for name in LIMBS])
    for step in STEPS:
        content |= _step(step, getattr(outcomes, step), outcomes.chains)
    for (measure, unit), (seen, number) in zip(MEASURES, delays_of(outcomes), strict=True):
        values = number / MICROSECONDS if unit == SECONDS else number
        content[f"{measure}_{unit}"] = pa.array(values, mask=~seen)
    return pa.table([content[name] for name in MESSAGES_SCHEMA.names], MESSAGES_SCHEMA)


def _step(step: str, places: Places, chains: list[str]) -> dict[str, pa.Array]:
    return {
        f"{step}_chain": strings(chains, places.chain),
        f"{step}_height": pa.array(places.height, mask=places.height == NO_HEIGHT),
        f"{step}_tick": pa.array(places.tick, mask=places.tick == NO_TICK),
        f"{step}_time": pa.array(places.time, mask=places.time == NO_TIME).cast(_TIME),
    }


__all__ = ["MESSAGES_SCHEMA", "STEPS", "messages_of"]
