"""What operators proved and chains checked in a lake of domains, what they refused, and what is held, at a committed
height, without Spark (XDM reference 2.4, 3.8, X-5; hazards 20 and 22)."""

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
"""Kinds of proofs, as a summary names them."""

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
"""Fees have 64 bits, their sum may have more."""


def summary(lake: Lake, manifest: Manifest) -> CarrierSummary:
    """Return what is told of a lake at a height after a run (``network.carriers``)."""
    proofs = {name: {"checked": 0, "old_root": 0} for name in PROOFS.values()}
    refused: dict[str, int] = defaultdict(int)
    others = dict.fromkeys(_OTHERS.values(), 0)
    for row in (row for part in lake.state(manifest, "counted") for row in part.to_pylist()):
        what = CheckCounters(row["what"])
        if what in PROOFS:
            proofs[PROOFS[what]]["checked"] += row["count"]
            proofs[PROOFS[what]]["old_root"] += row["old"]
        elif what == CheckCounters.REFUSED:
            refused[MessageValidity(row["error"]).name] += row["count"]
        else:
            others[_OTHERS[what]] += row["count"]
    held = [part["fee"].to_numpy() for part in lake.state(manifest, "responses", ["fee"])]
    kept = sum(map(len, held))
    fees = sum((int((part >> _HALF).sum()) << 32) + int((part & _LOW).sum()) for part in held)
    content = {
        "proofs": proofs,
        "refused_envelopes": dict(sorted(refused.items())),
        **others,
        "not_acknowledged": {"responses": kept, "fees": fees},
    }
    return CarrierSummary(content, list(_lines(content)))


def _lines(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a person reads of it."""
    proofs = content["proofs"]
    checked, old = (sum(each[name] for each in proofs.values()) for name in ("checked", "old_root"))
    if checked:
        kinds = ", ".join(f"{proofs[name]['checked']:,} {_SPOKEN[name]}" for name in proofs if proofs[name]["checked"])
        yield f"{checked:,} proofs checked ({kinds}), {old:,} of them under a root that is not the newest."
    parts = [f"{count:,} {name}" for name, count in content["refused_envelopes"].items()]
    if parts:
        yield f"Envelopes refused: {', '.join(parts)}."
    said = {"kept_early": "kept until their turn", "proved_again": "proved again", "never_answered": "never answered"}
    parts = [f"{content[name]:,} {text}" for name, text in said.items() if content[name]]
    if parts:
        yield f"Messages: {', '.join(parts)}."
    if content["frauds_proved"]:
        yield f"Frauds proved: {content['frauds_proved']:,}, with {content['receipts_pruned']:,} receipts pruned."
    held = content["not_acknowledged"]
    if held["responses"]:
        yield f"{held['responses']:,} responses not acknowledged, for which fees of {held['fees']:,} are held."
