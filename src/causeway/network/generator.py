"""Traffic of the source generated: not in this commit yet."""

from __future__ import annotations

from typing import Any

from causeway.model.errors import InvalidInput


def generated_traffic(*_: Any) -> Any:
    """Refuse: not built yet."""
    raise InvalidInput("traffic.source: generated traffic is not built yet")
