"""``causeway manual``: manual pages, generated from the help of the commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from causeway_proofs.errors import InvalidInput

from causeway.cli import completion, shell
from causeway.cli.options import argument, option
from causeway.core.text import suggest_known

_MARKUP = re.compile(r"\[/?(?:bold|cyan|red|green|yellow|dim)(?: [a-z]+)?\]|\[/\]")
_EXAMPLE = "Example: "


def _names() -> list[str]:
    from causeway.cli.app import COMMANDS

    return sorted(COMMANDS)


def command(
    name: Annotated[
        str | None,
        argument(
            "The command; without it, the page about all of them.",
            metavar="COMMAND",
            autocompletion=completion.complete_names(_names),
        ),
    ] = None,
    out: Annotated[
        Path | None, option("Write all pages there, as causeway.1, causeway-run.1 and so on.", metavar="DIR")
    ] = None,
) -> int:
    """Print the manual page of a command, as man reads it.

    To read it: causeway manual run | man -l -. With --out the pages of all commands are written into a folder, which
    may be the man1 of a MANPATH.

    [bold]Example[/bold]: causeway manual audit
    [bold]Example[/bold]: causeway manual --out ~/.local/share/man/man1
    """
    if name is not None and out is not None:
        raise InvalidInput("--out: all pages are written; give no command")
    if name is not None and name not in _names():
        raise InvalidInput(f"COMMAND: {suggest_known('command', name, _names())}")
    if out is None:
        print(manual_page(name), end="")
        return shell.OK
    from causeway.cli.output_paths import make_folder

    make_folder("--out", out)
    for each in (None, *_names()):
        path = out / f"{_title(each)}.1"
        try:
            path.write_text(manual_page(each), encoding="utf-8")
        except OSError as error:
            raise InvalidInput(f"--out {path}: cannot be written: {error.strerror}") from None
    shell.print_line(f"{len(_names()) + 1} pages written to {out}")
    return shell.OK


def manual_page(name: str | None) -> str:
    """Return the manual page of a command, or of all commands.

    Args:
        name: the command; None: all.

    Returns:
        roff source.
    """
    from typer.main import get_command

    import causeway
    from causeway.cli.app import build_app

    whole: Any = get_command(build_app(name))
    found = whole if name is None else whole.commands[name]
    title = _title(name)
    lines = [f'.TH "{title.upper()}" "1" "" "causeway {causeway.__version__}" "Causeway"', ".SH NAME"]
    summary, *rest = _plain(found.help).split("\n\n")
    lines += [
        f"{_escape_roff(title)} \\- {_escape_roff(summary.rstrip('.'))}",
        ".SH SYNOPSIS",
        *_synopsis(title, found),
    ]
    examples = [line.removeprefix(_EXAMPLE) for text in rest for line in text.splitlines() if line.startswith(_EXAMPLE)]
    lines.append(".SH DESCRIPTION")
    for number, text in enumerate([summary, *rest]):
        if not text.startswith(_EXAMPLE):
            lines += [*([".PP"] if number else []), _escape_roff(text.replace("\n", " "))]
    lines += _commands(found)
    lines += _arguments(found)
    lines += _options(found)
    if examples:
        lines.append(".SH EXAMPLES")
        for example in examples:
            lines += [".PP", ".nf", _escape_roff(example), ".fi"]
    lines.append(".SH EXIT STATUS")
    for code, meaning in shell.CODES.items():
        lines += [".TP", f".B {code}", _escape_roff(meaning)]
    lines += _see_also(name)
    return "\n".join(lines) + "\n"


def _title(name: str | None) -> str:
    return "causeway" if name is None else f"causeway-{name}"


def _plain(text: str | None) -> str:
    return _MARKUP.sub("", text or "")


def _escape_roff(text: str) -> str:
    """Escape a text for roff."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return f"\\&{text}" if text.startswith(".") else text


def _synopsis(title: str, found: Any) -> Iterator[str]:
    words = [f".B {_escape_roff(title.replace('causeway-', 'causeway '))}", "[\\fIOPTIONS\\fR]"]
    for each in found.params:
        if each.param_type_name == "argument":
            word = _argument(each)
            words.append(f"\\fI{_escape_roff(word)}\\fR" if each.required else f"[\\fI{_escape_roff(word)}\\fR]")
    if getattr(found, "commands", None):
        words.append("\\fICOMMAND\\fR ...")
    yield from words


def _argument(each: Any) -> str:
    return str(each.metavar or each.name).strip("{}").upper()


def _commands(found: Any) -> Iterator[str]:
    if not getattr(found, "commands", None):
        return
    yield ".SH COMMANDS"
    for name, each in found.commands.items():
        yield from (
            ".TP",
            f".B {_escape_roff(name)}",
            _escape_roff(_plain(each.help).split("\n\n")[0].replace("\n", " ")),
        )


def _arguments(found: Any) -> Iterator[str]:
    arguments = [each for each in found.params if each.param_type_name == "argument"]
    if arguments:
        yield ".SH ARGUMENTS"
    for each in arguments:
        yield from (".TP", f".I {_escape_roff(_argument(each))}", _escape_roff(_plain(each.help)))


def _options(found: Any) -> Iterator[str]:
    panels: dict[str, list[Any]] = {}
    for each in found.params:
        if each.param_type_name == "option" and not each.hidden:
            panels.setdefault(each.rich_help_panel or "", []).append(each)
    yield ".SH OPTIONS"
    for panel, options in panels.items():
        if panel:
            yield f".SS {_escape_roff(panel)}"
        for each in options:
            named = ", ".join(f"\\fB{_escape_roff(name)}\\fR" for name in (*each.secondary_opts, *each.opts))
            value = "" if each.is_flag else f" \\fI{_escape_roff(each.metavar or 'VALUE')}\\fR"
            default = each.default
            known = each.show_default and default not in (None, False) and not callable(default)
            description = f"{_plain(each.help)}{f' Default: {default}.' if known else ''}"
            yield from (".TP", f"{named}{value}", _escape_roff(description))


def _see_also(name: str | None) -> Iterator[str]:
    from causeway.cli.help import SEE_ALSO

    yield ".SH SEE ALSO"
    if name is None:
        yield ", ".join(f"\\fB{_escape_roff(_title(each))}\\fR(1)" for each in _names())
        return
    related, where = SEE_ALSO[name]
    yield ", ".join(f"\\fB{_escape_roff(_title(each))}\\fR(1)" for each in related.split()) + ","
    yield _escape_roff(where)
