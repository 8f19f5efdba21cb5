"""Add options that protocols declare to a command's own options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from causeway_proofs.errors import InvalidInput

from causeway.cli.options import option
from causeway.protocols.registry import find_protocol, protocol_names
from causeway.protocols.shared.command_options import CommandOption, DeclaredOption

DeclaringCommand = Callable[..., int]


def protocol_parts(field: str) -> list[Any]:
    """Return a part (``prover``, ``relay``) of every protocol that has it.

    Args:
        field: name of the part.

    Returns:
        The parts.
    """
    return [find_protocol(name).part(field) for name in protocol_names(field)]


def declare_options(
    command: DeclaringCommand,
    help_text: str,
    after: Mapping[str, Iterable[DeclaredOption]],
    panels: Mapping[str, str] = MappingProxyType({}),
) -> DeclaringCommand:
    """Return a command with declared options in place of its ``**keywords``.

    Args:
        command: the command.
        help_text: its help.
        after: declared options by the parameter before them.
        panels: help panel of these options, by the parameter before them.

    Returns:
        The command.
    """
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if parameter.kind == inspect.Parameter.VAR_KEYWORD:
            continue
        parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        for each in after.get(parameter.name, ()):
            parameters.append(_parameter(each, panels.get(parameter.name)))

    def with_declared(**given: Any) -> int:
        return command(**given)

    with_declared.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
    with_declared.__doc__ = help_text
    return with_declared


def merge_options(declared_by: Sequence[Sequence[CommandOption]]) -> list[CommandOption]:
    """Merge the options of several protocols; only common requirements stay required.

    A protocol checks its further requirements itself.

    Args:
        declared_by: the options of each protocol.

    Returns:
        Each option once.
    """
    found: dict[str, CommandOption] = {}
    for options in declared_by:
        for each in options:
            found.setdefault(each.name, each)
    required = [{option.name for option in options if option.required} for options in declared_by]
    always = set.intersection(*required) if required else set()
    return [
        option if option.name in always else CommandOption(**{**option.__dict__, "required": False})
        for option in found.values()
    ]


def reject_other_options(
    given: Mapping[str, Any], declared: Iterable[DeclaredOption], own: Iterable[DeclaredOption], protocol_name: str
) -> None:
    """Reject given options of other protocols.

    Args:
        given: the values of a command.
        declared: the options of all protocols.
        own: the options of one protocol.
        protocol_name: its name.

    Raises:
        InvalidInput: there is such an option.
    """
    known = {option.name for option in own}
    for each in declared:
        value, unset = given[each.name], each.default if isinstance(each, CommandOption) else None
        if each.name not in known and value is not False and value != unset:
            raise InvalidInput(f"{each.flag}: no option for lakes of {protocol_name}")


def _parameter(declared: DeclaredOption, panel: str | None) -> inspect.Parameter:
    if not isinstance(declared, CommandOption):
        file = option(declared.help, declared.flag, metavar="FILE", panel=panel)
        return _keyword(declared.name, Annotated[Path | None, file], None)
    if declared.kind is bool:
        return _keyword(declared.name, Annotated[bool, option(declared.help, declared.flag, panel=panel)], False)
    kind: Any = StrEnum(declared.name, list(declared.words)) if declared.words else declared.kind
    has_default = declared.default is not None
    info = option(
        declared.help,
        declared.flag,
        metavar=declared.metavar,
        panel=panel,
        show_default=has_default,
        min=declared.least,
        max=declared.most,
    )
    if declared.required:
        return _keyword(declared.name, Annotated[kind, info], inspect.Parameter.empty)
    return _keyword(declared.name, Annotated[kind if has_default else kind | None, info], declared.default)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
