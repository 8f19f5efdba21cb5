"""Summary of a lake of domains (XDM reference 2.4, 3.8, X-5; hazards 20 and 22).

It describes a height and needs no Spark.

It counts proofs by operators, checks and refusals by chains, and unacknowledged responses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from causeway.network.run_records import CarrierSummary
from causeway.protocols.xdm.check_counters import CheckCounters
from causeway.protocols.xdm.errors import MessageValidity
from causeway.storage.lake import Lake, Manifest

PROOFS = {
    CheckCounters.RANGE: "mountain_range",
    CheckCounters.RECEIPT: "receipt",
    CheckCounters.REQUEST: "request",
    CheckCounters.RESPONSE: "response",
}
"""Names of the kinds of proofs."""

_OTHERS = {
    CheckCounters.EARLY: "kept_early",
    CheckCounters.AGAIN: "proved_again",
    CheckCounters.UNANSWERED: "never_answered",
    CheckCounters.FRAUD: "frauds_proved",
    CheckCounters.PRUNED: "receipts_pruned",
}

_SPOKEN = {
    "mountain_range": "of blocks in the mountain range",
    "receipt": "of receipts",
    "request": "of requests",
    "response": "of responses",
}


_HALF, _LOW = np.uint64(32), np.uint64(2**32 - 1)
"""Fees have 64 bits; their sum is computed in halves."""


def summary(lake: Lake, manifest: Manifest) -> CarrierSummary:
    """Summarize a lake at a height after a run (``network.run_records``).

    Args:
        lake: The lake.
        manifest: Manifest of the height.
    """
    proofs = {name: {"checked": 0, "old_root": 0} for name in PROOFS.values()}
    refused: dict[str, int] = defaultdict(int)
    others = dict.fromkeys(_OTHERS.values(), 0)
    for row in (row for part in lake.state(manifest, "counted") for row in part.to_pylist()):
        kind = CheckCounters(row["what"])
        if kind in PROOFS:
            proofs[PROOFS[kind]]["checked"] += row["count"]
            proofs[PROOFS[kind]]["old_root"] += row["old"]
        elif kind == CheckCounters.REFUSED:
            refused[MessageValidity(row["error"]).name] += row["count"]
        else:
            others[_OTHERS[kind]] += row["count"]
    fee_parts = [part["fee"].to_numpy() for part in lake.state(manifest, "responses", ["fee"])]
    response_count = sum(map(len, fee_parts))
    fees = sum((int((part >> _HALF).sum()) << 32) + int((part & _LOW).sum()) for part in fee_parts)
    content = {
        "proofs": proofs,
        "refused_envelopes": dict(sorted(refused.items())),
        **others,
        "not_acknowledged": {"responses": response_count, "fees": fees},
    }
    return CarrierSummary(content, list(_lines(content)))


def _lines(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield the readable summary."""
    proofs = content["proofs"]
    checked, old = (sum(each[name] for each in proofs.values()) for name in ("checked", "old_root"))
    if checked:
        kinds = ", ".join(f"{proofs[name]['checked']:,} {_SPOKEN[name]}" for name in proofs if proofs[name]["checked"])
        yield f"{checked:,} proofs checked ({kinds}), {old:,} of them under a root that is not the newest."
    parts = [f"{count:,} {name}" for name, count in content["refused_envelopes"].items()]
    if parts:
        yield f"Envelopes refused: {', '.join(parts)}."
    texts = {"kept_early": "kept until their turn", "proved_again": "proved again", "never_answered": "never answered"}
    parts = [f"{content[name]:,} {text}" for name, text in texts.items() if content[name]]
    if parts:
        yield f"Messages: {', '.join(parts)}."
    if content["frauds_proved"]:
        yield f"Frauds proved: {content['frauds_proved']:,}, with {content['receipts_pruned']:,} receipts pruned."
    pending = content["not_acknowledged"]
    if pending["responses"]:
        yield f"{pending['responses']:,} responses not acknowledged, for which fees of {pending['fees']:,} are held."
