"""The options of egress queues: names, values and defaults of the reference, 4.1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from causeway.protocols.option_values import ProfiledOptions

DEPLOYED: Mapping[str, Any] = {"watermark_rule": "has_messages"}
"""What ``profile = deployed`` changes: the values of the reference's column "other" that chains run."""


class IcmpOptions(ProfiledOptions):
    """Options of egress queues; ``docs/protocols/icmp.md`` says what each does."""

    ingress_upper: Literal["exclusive", "inclusive"] = "exclusive"
    watermark_rule: Literal["any_ancestor", "has_messages"] = "any_ancestor"
    allow_empty_prefix: Literal["on", "off"] = "on"

    @classmethod
    def deployed(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what ``profile = deployed`` changes."""
        return DEPLOYED
