"""Commands that have options which protocols declare: they stand in the help beside the command's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer

from causeway.model.errors import InvalidInput
from causeway.protocols.command_options import CommandOption, DeclaredOption
from causeway.protocols.registry import names, protocol

Command = Callable[..., int]


def parts(field: str) -> list[Any]:
    """Return a part (``prover``, ``relay``) of every protocol that has it."""
    return [protocol(name).part(field) for name in names(field)]


def declared(
    command: Command,
    help_text: str,
    after: Mapping[str, Iterable[DeclaredOption]],
    panels: Mapping[str, str] = MappingProxyType({}),
) -> Command:
    """Return a command whose ``**keywords`` are the options declared; ``after``: those that stand after a parameter.

    ``help_text``: what the command says of itself; ``panels``: where in the help those after a parameter are.
    """
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if parameter.kind == inspect.Parameter.VAR_KEYWORD:
            continue
        parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        for option in after.get(parameter.name, ()):
            parameters.append(_parameter(option, panels.get(parameter.name)))

    def with_declared(**given: Any) -> int:
        return command(**given)

    with_declared.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
    with_declared.__doc__ = help_text
    return with_declared


def merged(declared_by: Sequence[Sequence[CommandOption]]) -> list[CommandOption]:
    """Return the options of several protocols, each once; required is only what all of them require.

    What one of them requires beside that, it says itself when it misses it.
    """
    found: dict[str, CommandOption] = {}
    for options in declared_by:
        for option in options:
            found.setdefault(option.name, option)
    required = [{option.name for option in options if option.required} for options in declared_by]
    always = set.intersection(*required) if required else set()
    return [
        option if option.name in always else CommandOption(**{**option.__dict__, "required": False})
        for option in found.values()
    ]


def refuse_others(
    given: Mapping[str, Any], declared: Iterable[DeclaredOption], own: Iterable[DeclaredOption], protocol_name: str
) -> None:
    """Refuse what is given of the options declared by any protocol that are none of one protocol's ``own``.

    Raises:
        InvalidInput: there is such an option.
    """
    known = {option.name for option in own}
    for option in declared:
        value, unset = given[option.name], option.default if isinstance(option, CommandOption) else None
        if option.name not in known and value is not False and value != unset:
            raise InvalidInput(f"{option.flag}: no option for lakes of {protocol_name}")


def _parameter(option: DeclaredOption, panel: str | None) -> inspect.Parameter:
    if not isinstance(option, CommandOption):
        info = typer.Option(option.flag, metavar="FILE", help=option.help, show_default=False, rich_help_panel=panel)
        return _keyword(option.name, Annotated[Path | None, info], None)
    if option.kind is bool:
        return _keyword(
            option.name, Annotated[bool, typer.Option(option.flag, help=option.help, rich_help_panel=panel)], False
        )
    kind: Any = StrEnum(option.name, list(option.words)) if option.words else option.kind
    has_default = option.default is not None
    info = typer.Option(
        option.flag,
        help=option.help,
        metavar=option.metavar,
        min=option.least,
        max=option.most,
        show_default=has_default,
        rich_help_panel=panel,
    )
    if option.required:
        return _keyword(option.name, Annotated[kind, info], inspect.Parameter.empty)
    return _keyword(option.name, Annotated[kind if has_default else kind | None, info], option.default)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
