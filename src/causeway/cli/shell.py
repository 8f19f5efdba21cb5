"""How a command ends: an exit code, and one line on standard error when something is wrong. Never a stack trace."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from causeway_proofs.errors import InvalidInput, describe_os_error

from causeway.core.text import escape_controls, format_value

OK = 0
FAILED = 1
BAD_INPUT = 2
UNEXPECTED = 3
INCONCLUSIVE = 4
INTERRUPTED = 130
PIPE_CLOSED = 141

DEBUG = "CAUSEWAY_DEBUG"

_MAX_CAUSES = 64
_NOT_TEXT = re.compile("[\ud800-\udfff]")
"""What Python makes of bytes of an argument that are no text."""

_MAX_CHARACTERS = 500
_END_CHARACTERS = 200

CODES = {
    OK: "passed, or done",
    FAILED: "failed",
    BAD_INPUT: "bad input, refused, or nothing examined",
    UNEXPECTED: "internal error",
    INCONCLUSIVE: "inconclusive under --strict",
    INTERRUPTED: "interrupted",
    PIPE_CLOSED: "output closed by its reader",
}
"""The exit codes of all commands. The table of docs/command-line.md has the same words, and says when."""

EPILOG = (
    f"Exit codes: {'; '.join(f'{code} {meaning}' for code, meaning in CODES.items())}. "
    f"{DEBUG}=1 shows the trace of an error."
)


def exit_code(verdict: str, *, strict: bool = False) -> int:
    """Return the exit code of a verdict (``audit.verdict.Verdict``). ``strict``: whether inconclusive is no success."""
    unsure = INCONCLUSIVE if strict else OK
    return {"PASSED": OK, "FAILED": FAILED, "INCONCLUSIVE": unsure, "NOT APPLICABLE": BAD_INPUT}[verdict]


class CommandInterrupted(Exception):
    """The user stopped a command; the message says what was done and how to continue."""


Build = Callable[[str | None], Callable[..., object]]
"""Creates the Typer application for a command line, given the name of its command (``app.build``)."""


def execute(arguments: Sequence[str], build: Build, name: str) -> int:
    """Run a command line and return its exit code.

    ``build``: makes the Typer application, so that what fails while it is imported ends here, too. ``name``: what the
    user typed to start it.
    """
    _open_all_streams()
    if not is_debugging():
        logging.disable(logging.CRITICAL)  # Spark's and its bridge's: what matters is raised as an error
    try:
        with _no_lost_interrupts():
            code = _execute(arguments, build, name)
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_output()
        return PIPE_CLOSED
    except SystemExit as error:
        if error.code != 1:
            raise
        # Typer and Rich end so when the output is closed, and no command does.
        _forget_output()
        return PIPE_CLOSED
    except (KeyboardInterrupt, CommandInterrupted) as error:
        print_line(str(error) or "interrupted")
        return INTERRUPTED
    except Exception as error:
        if was_interrupted(error):
            print_line("interrupted")
            return INTERRUPTED
        code = _failed(error, arguments)
        _flush_or_forget()
    return code


@contextlib.contextmanager
def interruptible(text: str) -> Iterator[None]:
    """Say ``text`` of an interrupt that comes while the body runs: also where a library makes an error of its own of
    it, or Python drops it."""
    try:
        with _no_lost_interrupts(text):
            yield
    except BaseException as error:
        if not was_interrupted(error):
            raise
        raise CommandInterrupted(text) from None


@contextlib.contextmanager
def _no_lost_interrupts(text: str = "interrupted") -> Iterator[None]:
    """End the process where Python drops an interrupt: one that comes in a callback of its garbage collection, say."""
    before = sys.unraisablehook

    def dropped(lost: Any) -> None:
        if not isinstance(lost.exc_value, KeyboardInterrupt):
            before(lost)
            return
        print_line(text)
        os._exit(INTERRUPTED)

    sys.unraisablehook = dropped
    try:
        yield
    finally:
        sys.unraisablehook = before


def was_interrupted(error: BaseException | None) -> bool:
    """Return whether an error came of an interrupt: packages make errors of their own of one in their imports."""
    seen = 0
    while error is not None and seen < _MAX_CAUSES:
        if isinstance(error, KeyboardInterrupt):
            return True
        error, seen = error.__cause__ or error.__context__, seen + 1
    return False


def _execute(arguments: Sequence[str], build: Build, name: str) -> int:
    from typer.exceptions import Abort, TyperException

    try:
        code = build(next(iter(arguments), None))(list(arguments), prog_name=name, standalone_mode=False)
    except TyperException as error:
        return _misused(error, name, arguments)
    except Abort:
        raise KeyboardInterrupt from None
    if code == INTERRUPTED:
        # Typer makes this of an interrupt that comes while a command runs; no command returns it.
        raise KeyboardInterrupt
    return code if isinstance(code, int) else OK


def _misused(error: Exception, name: str, arguments: Sequence[str]) -> int:
    """Say in one line what is wrong with the arguments; without arguments, the help has been asked for."""
    text = _wrong_value(error) or " ".join(str(getattr(error, "format_message", lambda: error)()).split())
    context = getattr(error, "ctx", None)
    # An option that misses its value does not say of which command it is.
    asked = f"{name} {arguments[0]}" if arguments and arguments[0].isidentifier() else name
    command = getattr(context, "command_path", asked)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(getattr(error, "message", text), file=sys.stderr)
        return BAD_INPUT
    print_line(f"{text.rstrip('.')} (see {command} --help)")
    return BAD_INPUT


def _wrong_value(error: Exception) -> str | None:
    """Return the line about a value that an option does not take: its name, the value, what is allowed."""
    details = getattr(error.__cause__, "errors", None)  # of Pydantic, by which Typer reads values
    param = getattr(error, "param", None)
    if details is None or param is None:
        return None
    first = details()[0]
    name, said = param.get_error_hint().replace("'", ""), first["msg"]
    if first["type"] == "value_error":
        return f"{name}: {to_printable(str(first['ctx']['error']))}"
    allowed = said.removeprefix("Input should ").partition(",")[0]
    return f"{name}: {escape_controls(format_value(first['input']))}: must {allowed}"


def _failed(error: Exception, arguments: Sequence[str]) -> int:
    if is_debugging():
        traceback.print_exception(error)
    if isinstance(error, UnicodeEncodeError):
        for given in arguments:
            if _NOT_TEXT.search(given):
                print_line(f"{ascii(given)[:_MAX_CHARACTERS]}: is no text in UTF-8")
                return BAD_INPUT
    if isinstance(error, InvalidInput):
        print_line(escape_controls(str(error).strip())[:_MAX_CHARACTERS])
        if error.hint is not None:
            print_line(escape_controls(error.hint), "hint")
        return BAD_INPUT
    place = describe_os_error(error)
    if place is not None:
        print_line(to_printable(place))
        return BAD_INPUT
    print_line(internal_error_line(error))
    return UNEXPECTED


def internal_error_line(error: BaseException) -> str:
    """Return the line about an internal error."""
    return f"unexpected {type(error).__name__}: {one_line(error)} ({DEBUG}=1 shows the trace)"


def is_debugging() -> bool:
    """Return whether the user wants to see the trace of an error."""
    return os.environ.get(DEBUG, "") not in ("", "0")


def print_line(text: str, label: str = "causeway") -> None:
    """Write one line to the user, apart from the results; of a long one its beginning and its end."""
    if len(text) > _MAX_CHARACTERS + 2 * _END_CHARACTERS:
        text = f"{text[:_MAX_CHARACTERS]} ... {text[-_END_CHARACTERS:]}"
    with contextlib.suppress(OSError):
        print(f"{label}: {text}", file=sys.stderr, flush=True)


def one_line(error: BaseException) -> str:
    """Return the first non-empty line of an error's text, cut to a readable length."""
    lines = [to_printable(line) for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else "no further text")[:_MAX_CHARACTERS]


def to_printable(text: str) -> str:
    """Return a text from a stranger as one line that no terminal takes for a command."""
    return "".join(character if character.isprintable() else "?" for character in " ".join(text.split()))


def _open_all_streams() -> None:
    """Open what whoever started the process has closed: the next file would take the place of an output."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what the terminal's encoding has no sign for


def _flush_or_forget() -> None:
    """Write what is left, or forget it where it cannot be written: Python would try again at exit, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        _forget_output()


def _forget_output() -> None:
    """Prevent errors at exit because the output was closed."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
