"""The options of egress queues: names, values and defaults of the reference, 4.1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, Strict, model_validator

from causeway.model.section import Section
from causeway.protocols.block_numbers import PlannedTick
from causeway.protocols.icmp.body_table import BodyTable, read_body_table
from causeway.protocols.icmp.channel_options import HrmpOptions
from causeway.protocols.option_values import ProfiledOptions, wrong

DEPLOYED: Mapping[str, Any] = {"watermark_rule": "has_messages"}
"""What ``profile = deployed`` changes: the values of the reference's column "other" that chains run."""


MOST_TICKS = 1_000_000
"""Bodies are on their way for at most so many ticks on average, and the fallback comes at the latest after so many."""

MOST_CALLS = 100_000
"""A scenario plans at most so many calls."""


class ParaCall(Section):
    """A call to the relay chain: in its first block from ``tick`` on ``chain`` is registered or deregistered, or does
    not want to hear ``other`` any more (``block``), or again (``unblock``)."""

    tick: PlannedTick
    chain: str
    do: Literal["register", "deregister", "block", "unblock"]
    other: str | None = None


class IcmpOptions(HrmpOptions, ProfiledOptions):
    """Options of egress queues; ``docs/protocols/icmp.md`` says what each does."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    ingress_upper: Literal["exclusive", "inclusive"] = "exclusive"
    watermark_mode: Literal["per_candidate", "now_minus_1"] = "per_candidate"
    watermark_rule: Literal["any_ancestor", "has_messages"] = "any_ancestor"
    allow_empty_prefix: Literal["on", "off"] = "on"
    bodies: Literal["ideal", "drawn", "simulated"] = "ideal"
    body_ticks: float = Field(default=1.0, ge=0, le=MOST_TICKS)
    body_loss: float = Field(default=0.0, ge=0, le=1)
    body_table: Annotated[BodyTable | None, BeforeValidator(read_body_table)] = None
    fallback_request: Literal["off", "on"] = "off"
    fallback_after: int = Field(default=4, ge=0, le=MOST_TICKS)
    para_calls: Annotated[tuple[ParaCall, ...], Strict(False)] = Field(default=(), max_length=MOST_CALLS)

    @model_validator(mode="after")
    def _of_the_channels(self) -> Self:
        """Refuse options that do nothing with the channels that there are."""
        deployed = DEPLOYED if self.profile == "deployed" else {}
        for row, call in enumerate(self.para_calls if self.channels == "hrmp" else ()):
            if call.do in ("block", "unblock"):
                allowed = 'allowed with channels = "hrmp": "register", "deregister"'
                raise wrong(f"para_calls.{row}.do", f"{call.do!r}; {allowed}")
        for key in sorted(self.model_fields_set - {"channels", "profile", "para_calls"}):
            needed = "hrmp" if key in HrmpOptions.model_fields else "egress"
            if needed != self.channels and deployed.get(key) != getattr(self, key):
                raise wrong(key, f'it does nothing with channels = "{self.channels}"; it needs channels = "{needed}"')
        return self

    @model_validator(mode="after")
    def _table_is_there(self) -> Self:
        if (self.bodies == "simulated") != (self.body_table is not None):
            given = "missing" if self.body_table is None else f'it does nothing with bodies = "{self.bodies}"'
            raise wrong("body_table", f'{given}; with bodies = "simulated", and only then, it names a table')
        return self

    @model_validator(mode="after")
    def _of_the_bodies(self) -> Self:
        """Refuse options that do nothing where every body is there at once, or in a table."""
        needed: dict[str, tuple[str, ...]] = {"body_ticks": ("drawn",), "body_loss": ("drawn",)}
        needed |= dict.fromkeys(("fallback_request", "fallback_after"), ("drawn", "simulated"))
        for key in sorted(self.model_fields_set & needed.keys()):
            if self.bodies not in needed[key]:
                allowed = " or ".join(f'"{bodies}"' for bodies in needed[key])
                raise wrong(key, f'it does nothing with bodies = "{self.bodies}"; it needs bodies = {allowed}')
        return self

    @classmethod
    def deployed(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what ``profile = deployed`` changes."""
        return DEPLOYED
