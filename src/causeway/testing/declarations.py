"""Declarations of a test network: its scenario tables, faults, TOML text and literal types.

``chain_sections``, ``program_sections`` and ``fault_section`` convert a test's arguments to scenario tables.
``format_toml`` writes them as a file. The literal types let a type checker find unknown words.
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
"""Class of the programs that make calls for a test."""

CALLERS = "caller/"
"""Prefix of a network's own callers, one a chain; the chain's name follows."""

CALLER_BALANCE = 10**12
"""Initial balance of each of them."""

ProgramClass: TypeAlias = str | catalogue.ProgramClass
"""A program class, or its name in a scenario (a catalogue name or ``module:Class``)."""


@dataclass(frozen=True)
class Deploy:
    """A program on a chain.

    Attributes:
        program: Its class, or the class's name: ``"caller"``, ``"module:Class"``.
        chain: Name of its chain; None: the first chain.
        name: Its name; None: the class's name in lower case.
        options: Value of ``self.options``; ``ref(name)`` in them becomes the number of that program.
        balance: Its initial balance.
    """

    program: ProgramClass
    chain: str | None = None
    name: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    balance: int = 0

    def section(self, chain: str, bound: dict[str, catalogue.ProgramClass]) -> dict[str, Any]:
        """Convert it to a section ``[[programs]]``.

        Args:
            chain: Default chain.
            bound: Classes of the network by name; extended by this one.
        """
        program = class_name(self.program, bound)
        default_name = program.partition("#")[0].rpartition(":")[2].rpartition(".")[2].lower()
        name = self.name if self.name is not None else default_name
        section = {"name": name, "chain": self.chain if self.chain is not None else chain, "program": program}
        more = {"options": dict(self.options), "balance": self.balance}
        return section | {key: value for key, value in more.items() if value}


def class_name(program: ProgramClass, bound: dict[str, catalogue.ProgramClass]) -> str:
    """Return the name of a class in a network.

    Args:
        program: The class or its name.
        bound: Classes of the network by name; extended by a given class.

    Raises:
        InvalidInput: ``program`` is not a program.
    """
    return program if isinstance(program, str) else catalogue.register_class(program, bound)


def chain_sections(chains: int | Iterable[str | Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Convert chains to sections ``[[chains]]``.

    Args:
        chains: Number of chains, their names, or complete sections.

    Raises:
        InvalidInput: The argument is invalid.
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
    """Return the names of the chains (``[[chains]]``) without a role."""
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
    """Convert programs to sections ``[[programs]]``, followed by a caller on every chain.

    Args:
        programs: The programs.
        chains: Names of the chains.
        callers: Balance of each caller; None: no callers.
        bound: Classes of the network by name; extended.

    Raises:
        InvalidInput: An argument is invalid.
    """
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
    """An injected fault, for ``heal``.

    Attributes:
        number: Number among the network's faults.
        kind: Kind of the fault.
        since: Tick from which it is known.
    """

    number: int
    kind: str
    since: int


def fault_section(info: ProtocolInfo, kind: str, keys: Mapping[str, Any], now: int) -> dict[str, Any]:
    """Convert a fault to a section ``[[faults]]``.

    Args:
        info: The protocol.
        kind: Kind of the fault.
        keys: Its keys, ``from_`` for ``from``.
        now: Default begin; a kind with two such keys has none.

    Raises:
        InvalidInput: The kind is unknown.
    """
    kinds = {name: model for model in info.fault_kinds() for name in get_args(model.model_fields["kind"].annotation)}
    if kind not in kinds:
        raise InvalidInput(f"inject: {suggest_known('fault', kind, kinds)}")
    section = {name.removesuffix("_"): value for name, value in keys.items()}
    fields = {field.alias or name: field for name, field in kinds[kind].model_fields.items()}
    begin_keys = [key for key in ("from", "tick") if key in fields]
    if len(begin_keys) == 1:  # with both keys the test must choose
        section.setdefault(begin_keys[0], now)
    return {"kind": kind, **section}


_BARE = re.compile(r"[A-Za-z0-9_-]+")

LARGEST = 2**63 - 1
"""Largest integer that every TOML parser supports; larger ones become quoted digits."""


def format_toml(document: Mapping[str, Any]) -> str:
    """Format the tables of a scenario as TOML; None values are omitted."""
    parts: list[str] = []
    _append_section(document, (), parts)
    return "\n".join(parts).lstrip("\n") + "\n"


def _append_section(table: Mapping[str, Any], path: tuple[str, ...], parts: list[str]) -> None:
    """Format the keys of a table, then its subtables as sections, down to the second level."""
    below = [(key, value) for key, value in table.items() if _is_section(value) and len(path) < 2]
    for key, value in table.items():
        if value is not None and (key, value) not in below:
            parts.append(f"{_key(key)} = {_value(value)}")
    for key, value in below:
        name = ".".join(map(_key, (*path, key)))
        if isinstance(value, Mapping):
            if value:
                parts.append(f"\n[{name}]")
                _append_section(value, (*path, key), parts)
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
"""Kinds of faults of all protocols; each protocol has some of them."""

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
