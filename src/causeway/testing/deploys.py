"""From what a test says of a network to the tables of its scenario."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from causeway.model.errors import InvalidInput
from causeway.model.text import is_text, shown
from causeway.programs import catalogue

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
    return program if isinstance(program, str) else catalogue.name_of_class(program, bound)


def chain_sections(chains: int | Iterable[str | Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return chains as in ``[[chains]]``: so many, by their names, or with all that a scenario may say of one.

    Raises ``InvalidInput``.
    """
    if isinstance(chains, bool | str | Mapping) or not isinstance(chains, int | Iterable):
        raise InvalidInput(f"chains: {shown(chains)}: must be a number of chains, or a list of names or tables")
    if isinstance(chains, int):
        if chains < 1:
            raise InvalidInput(f"chains: {chains}: must be at least 1")
        return [{"name": f"chain-{place}"} for place in range(chains)]
    found = list(chains)
    for place, chain in enumerate(found):
        if not isinstance(chain, str | Mapping):
            raise InvalidInput(f"chains[{place}]: {shown(chain)}: must be the name of a chain, or a table of its keys")
        if isinstance(chain, str) and not is_text(chain):
            raise InvalidInput(f"chains[{place}]: {shown(chain)}: half of a surrogate pair is no text")
    return [{"name": chain} if isinstance(chain, str) else dict(chain) for chain in found]


def names_of(sections: Sequence[Mapping[str, Any]]) -> list[str]:
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
        raise InvalidInput(f"programs: {shown(programs)}: must be a list of cw.Deploy(Class, chain=..., ...)")
    for place, deploy in enumerate(programs):
        if not isinstance(deploy, Deploy):
            raise InvalidInput(f"programs[{place}]: {shown(deploy)}: must be a cw.Deploy(Class, chain=..., ...)")
        found.append(deploy.section(chains[0] if chains else "", bound))
    if callers is not None:
        found += [
            {"name": f"{CALLERS}{chain}", "chain": chain, "program": CALLER, "balance": callers} for chain in chains
        ]
    return found
