"""From what a test says of a network to the tables of its scenario.

Faults that a test injects: sections of the protocol's kinds, which begin now unless they say otherwise.

The tables of a scenario as the text of a TOML file.

The words that networks in memory take, as types: a type checker finds one that there is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from causeway_proofs.errors import InvalidInput

from causeway.config.document import quote_toml
from causeway.core.text import format_value, is_text, suggest_known
from causeway.programs import catalogue
from causeway.protocols.registry import ProtocolInfo, ProtocolName

__all__ = ["FaultKind", "MessageKind", "MessageStatus", "ProtocolName", "RejectName"]

CALLER = "caller"
"""The class of the programs that call others for a test."""

CALLERS = "caller/"
"""What the names of those begin with that a network brings along, one a chain; the chain's name follows."""

CALLER_BALANCE = 10**12
"""What each of them has at the beginning."""

ProgramClass: TypeAlias = str | catalogue.ProgramClass
"""A program: its class, or the class's name in a scenario (a name of the catalogue, ``module:Class``)."""


@dataclass(frozen=True)
class Deploy:
    """A program on a chain.

    Attributes:
        program: its class, or the class's name: ``"caller"``, ``"module:Class"``.
        chain: name of its chain; without it, the first chain.
        name: its name; without it, that of the class in small letters.
        options: what ``self.options`` will be; ``ref(name)`` in them becomes the number of that program.
        balance: the value it starts with.
    """

    program: ProgramClass
    chain: str | None = None
    name: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    balance: int = 0

    def section(self, chain: str, bound: dict[str, catalogue.ProgramClass]) -> dict[str, Any]:
        """Return it as in ``[[programs]]``; ``chain``: where it is without one of its own; ``bound``: the classes of
        the network by name."""
        program = class_name(self.program, bound)
        own = program.partition("#")[0].rpartition(":")[2].rpartition(".")[2].lower()
        name = self.name if self.name is not None else own
        section = {"name": name, "chain": self.chain if self.chain is not None else chain, "program": program}
        more = {"options": dict(self.options), "balance": self.balance}
        return section | {key: value for key, value in more.items() if value}


def class_name(program: ProgramClass, bound: dict[str, catalogue.ProgramClass]) -> str:
    """Return the name of a class in a network, of which ``bound`` has those that were given as such. Raises
    ``InvalidInput`` for what is no program."""
    return program if isinstance(program, str) else catalogue.register_class(program, bound)


def chain_sections(chains: int | Iterable[str | Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return chains as in ``[[chains]]``: so many, by their names, or with all that a scenario may say of one.

    Raises ``InvalidInput``.
    """
    if isinstance(chains, bool | str | Mapping) or not isinstance(chains, int | Iterable):
        raise InvalidInput(f"chains: {format_value(chains)}: must be a number of chains, or a list of names or tables")
    if isinstance(chains, int):
        if chains < 1:
            raise InvalidInput(f"chains: {chains}: must be at least 1")
        return [{"name": f"chain-{place}"} for place in range(chains)]
    found = list(chains)
    for place, chain in enumerate(found):
        if not isinstance(chain, str | Mapping):
            raise InvalidInput(
                f"chains[{place}]: {format_value(chain)}: must be the name of a chain, or a table of its keys"
            )
        if isinstance(chain, str) and not is_text(chain):
            raise InvalidInput(f"chains[{place}]: {format_value(chain)}: half of a surrogate pair is no text")
    return [{"name": chain} if isinstance(chain, str) else dict(chain) for chain in found]


def plain_chain_names(sections: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of chains (``[[chains]]``) that have no role."""
    found: list[str] = []
    for section in sections:
        if section.get("role"):
            continue
        if "count" in section:
            found += [f"{section.get('prefix', 'chain-')}{place}" for place in range(int(section["count"]))]
        elif "name" in section:
            found.append(str(section["name"]))
    return found


def program_sections(
    programs: Iterable[Deploy],
    chains: Sequence[str],
    callers: int | None,
    bound: dict[str, catalogue.ProgramClass],
) -> list[dict[str, Any]]:
    """Return programs as in ``[[programs]]``, and behind them a caller on every chain, with a balance of ``callers``;
    none for None. ``chains``: names; ``bound``: takes their classes by name. Raises ``InvalidInput``."""
    found = []
    if isinstance(programs, Deploy) or not isinstance(programs, Iterable):
        raise InvalidInput(f"programs: {format_value(programs)}: must be a list of cw.Deploy(Class, chain=..., ...)")
    for place, deploy in enumerate(programs):
        if not isinstance(deploy, Deploy):
            raise InvalidInput(f"programs[{place}]: {format_value(deploy)}: must be a cw.Deploy(Class, chain=..., ...)")
        found.append(deploy.section(chains[0] if chains else "", bound))
    if callers is not None:
        found += [
            {"name": f"{CALLERS}{chain}", "chain": chain, "program": CALLER, "balance": callers} for chain in chains
        ]
    return found


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
        raise InvalidInput(f"inject: {suggest_known('fault', kind, kinds)}")
    section = {name.removesuffix("_"): value for name, value in keys.items()}
    fields = {field.alias or name: field for name, field in kinds[kind].model_fields.items()}
    begins = [key for key in ("from", "tick") if key in fields]
    if len(begins) == 1:  # a kind that has both is told which
        section.setdefault(begins[0], now)
    return {"kind": kind, **section}


_BARE = re.compile(r"[A-Za-z0-9_-]+")

LARGEST = 2**63 - 1
"""The largest whole number that every reader of TOML knows; larger ones are written as digits in quotes."""


def format_toml(document: Mapping[str, Any]) -> str:
    """Return the tables of a scenario as text. What is None is left out."""
    parts: list[str] = []
    _section(document, (), parts)
    return "\n".join(parts).lstrip("\n") + "\n"


def _section(table: Mapping[str, Any], path: tuple[str, ...], parts: list[str]) -> None:
    """Write the keys of a table, then the tables in it: those are sections of their own down to the second level."""
    below = [(key, value) for key, value in table.items() if _is_section(value) and len(path) < 2]
    for key, value in table.items():
        if value is not None and (key, value) not in below:
            parts.append(f"{_key(key)} = {_value(value)}")
    for key, value in below:
        name = ".".join(map(_key, (*path, key)))
        if isinstance(value, Mapping):
            if value:
                parts.append(f"\n[{name}]")
                _section(value, (*path, key), parts)
            continue
        for each in value:
            parts.append(f"\n[[{name}]]")
            parts.extend(f"{_key(one)} = {_value(found)}" for one, found in each.items() if found is not None)


def _is_section(value: Any) -> bool:
    return isinstance(value, Mapping) or (
        isinstance(value, list | tuple) and bool(value) and all(isinstance(each, Mapping) for each in value)
    )


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else quote_toml(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if -LARGEST <= value <= LARGEST else f'"{value}"'
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{_key(key)} = {_value(each)}" for key, each in value.items() if each is not None)
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(each) for each in value)}]"
    return quote_toml(str(value))


FaultKind: TypeAlias = Literal[
    "absent",
    "alter",
    "batch",
    "block_maker",
    "bundle",
    "candidate",
    "delay",
    "deposit",
    "disconnect",
    "drop",
    "foreign",
    "forge",
    "fork",
    "fraud",
    "gap",
    "halt",
    "node",
    "recover",
    "reorder",
    "reorg",
    "replay",
    "stale",
    "tamper",
]
"""Kinds of faults of all protocols together; each has some of them."""

MessageKind: TypeAlias = Literal["ingress", "request", "response"]

MessageStatus: TypeAlias = Literal["waiting", "executed", "failed", "lost", "refused", "answered", "rejected"]

RejectName: TypeAlias = Literal[
    "NOT_FOUND",
    "REFUSED",
    "FAILED",
    "TIMED_OUT",
    "NO_FUNDS",
    "UNREACHABLE",
    "BUSY",
    "TOO_LARGE",
    "INVALID",
    "OTHER",
]
"""Names of ``RejectCode``."""
