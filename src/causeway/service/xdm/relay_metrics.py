"""What Prometheus is told by a relay process between lakes of domains."""

from __future__ import annotations

from causeway.service.relay_metrics import ProgressCollector
from causeway.service.xdm.relaying import Relaying

GAUGES = {
    "left": "Messages, blocks or receipts that are to be brought, by both chains.",
    "moved_at": "Height of the last block of the target that has what this process submitted.",
}
COUNTERS = {
    "passes": "Looks at both chains.",
    "transactions": "Transactions handed over.",
    "messages": "Messages, blocks or receipts handed over.",
}
BY_NAME = {"errors": "Errors of requests."}


class RelayCollector(ProgressCollector):
    """The metrics of a relay process."""

    def __init__(self, relaying: Relaying) -> None:
        super().__init__(relaying.progress, GAUGES, COUNTERS, BY_NAME)
