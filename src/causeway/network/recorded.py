"""Traffic of the source recorded: not in this commit yet."""

from __future__ import annotations

from typing import Any

from causeway.model.errors import InvalidInput


def recorded_traffic(*_: Any) -> Any:
    """Refuse: not built yet."""
    raise InvalidInput("traffic.source: recorded traffic is not built yet")
