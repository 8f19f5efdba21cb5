"""Faults that a test injects: sections of the protocol's kinds, which begin now unless they say otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from causeway.model.errors import InvalidInput
from causeway.model.text import unknown
from causeway.protocols.registry import ProtocolInfo


@dataclass(frozen=True)
class Fault:
    """A fault that was injected, to be healed: its ``kind``, and the tick ``since`` when it is known. ``number``: among
    those of the network."""

    number: int
    kind: str
    since: int


def fault_section(info: ProtocolInfo, kind: str, keys: Mapping[str, Any], now: int) -> dict[str, Any]:
    """Return a fault as in ``[[faults]]``. ``keys``: those of the kind, ``from_`` for ``from``; where the one that says
    when it begins is missing, it begins ``now``, unless the kind has two of them. Raises ``InvalidInput`` for an
    unknown kind."""
    kinds = {name: model for model in info.fault_kinds() for name in get_args(model.model_fields["kind"].annotation)}
    if kind not in kinds:
        raise InvalidInput(f"inject: {unknown('fault', kind, kinds)}")
    section = {name.removesuffix("_"): value for name, value in keys.items()}
    fields = {field.alias or name: field for name, field in kinds[kind].model_fields.items()}
    begins = [key for key in ("from", "tick") if key in fields]
    if len(begins) == 1:  # a kind that has both is told which
        section.setdefault(begins[0], now)
    return {"kind": kind, **section}
