"""Exit codes and error lines of commands: one line on standard error, never a stack trace."""

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

from causeway.core.interrupts import was_interrupted
from causeway.core.text import escape_controls, format_value

OK = 0
FAILED = 1
BAD_INPUT = 2
UNEXPECTED = 3
INCONCLUSIVE = 4
INTERRUPTED = 130
PIPE_CLOSED = 141

DEBUG = "CAUSEWAY_DEBUG"

_NOT_TEXT = re.compile("[\ud800-\udfff]")
"""Python's code points of undecodable bytes in an argument."""

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
"""The exit codes of all commands; the table of docs/reference/command-line.md has the same words."""

EPILOG = (
    f"Exit codes: {'; '.join(f'{code} {meaning}' for code, meaning in CODES.items())}. "
    f"{DEBUG}=1 shows the trace of an error."
)


def exit_code(verdict: str, *, strict: bool = False) -> int:
    """Return the exit code of a verdict.

    Args:
        verdict: the verdict (``audit.verdict.Verdict``).
        strict: treat inconclusive as a failure.

    Returns:
        The exit code.
    """
    unsure = INCONCLUSIVE if strict else OK
    return {"PASSED": OK, "FAILED": FAILED, "INCONCLUSIVE": unsure, "NOT APPLICABLE": BAD_INPUT}[verdict]


class CommandInterrupted(Exception):
    """The user stopped a command; the message has the progress and the way to continue."""


Build = Callable[[str | None], Callable[..., object]]
"""Builds the Typer application, given the name of the command (``app.build_app``)."""


def execute(arguments: Sequence[str], build: Build, name: str) -> int:
    """Run a command line and return its exit code.

    Args:
        arguments: the command line.
        build: builds the Typer application, so that errors of its imports are handled, too.
        name: the name of the program as typed.

    Returns:
        The exit code.
    """
    _open_all_streams()
    if not is_debugging():
        logging.disable(logging.CRITICAL)  # warnings of Spark and Py4J; errors are raised
    try:
        with _no_lost_interrupts():
            code = _execute(arguments, build, name)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        return PIPE_CLOSED
    except SystemExit as error:
        if error.code != 1:
            raise
        # Raised by Typer and Rich for a closed output, and by no command.
        _discard_output()
        return PIPE_CLOSED
    except (KeyboardInterrupt, CommandInterrupted) as error:
        print_line(str(error) or "interrupted")
        return INTERRUPTED
    except Exception as error:
        if was_interrupted(error):
            print_line("interrupted")
            return INTERRUPTED
        code = _command_error(error, arguments)
        # Flush standard output, or discard it if that fails: Python would retry at exit.
        try:
            sys.stdout.flush()
        except OSError:
            _discard_output()
    return code


@contextlib.contextmanager
def interruptible(text: str) -> Iterator[None]:
    """Report an interrupt of the body with a text, even if a library wraps or Python drops it.

    Args:
        text: the message.
    """
    try:
        with _no_lost_interrupts(text):
            yield
    except BaseException as error:
        if not was_interrupted(error):
            raise
        raise CommandInterrupted(text) from None


@contextlib.contextmanager
def _no_lost_interrupts(text: str = "interrupted") -> Iterator[None]:
    """End the process if Python drops an interrupt, for example in a garbage collector callback."""
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


def _execute(arguments: Sequence[str], build: Build, name: str) -> int:
    from typer.exceptions import Abort, TyperException

    try:
        code = build(next(iter(arguments), None))(list(arguments), prog_name=name, standalone_mode=False)
    except TyperException as error:
        return _usage_error(error, name, arguments)
    except Abort:
        raise KeyboardInterrupt from None
    if code == INTERRUPTED:
        # Typer's code for an interrupt during a command; no command returns it.
        raise KeyboardInterrupt
    return code if isinstance(code, int) else OK


def _usage_error(error: Exception, name: str, arguments: Sequence[str]) -> int:
    """Print the usage error in one line; without arguments, the help."""
    text = _wrong_value(error) or " ".join(str(getattr(error, "format_message", lambda: error)()).split())
    context = getattr(error, "ctx", None)
    # The error about a missing value has no context of its command.
    typed = f"{name} {arguments[0]}" if arguments and arguments[0].isidentifier() else name
    command = getattr(context, "command_path", typed)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(getattr(error, "message", text), file=sys.stderr)
        return BAD_INPUT
    print_line(f"{text.rstrip('.')} (see {command} --help)")
    return BAD_INPUT


def _wrong_value(error: Exception) -> str | None:
    """Return the line about an invalid option value: option, value, allowed values."""
    details = getattr(error.__cause__, "errors", None)  # raised by Pydantic, Typer's parser of values
    param = getattr(error, "param", None)
    if details is None or param is None:
        return None
    first = details()[0]
    name, message = param.get_error_hint().replace("'", ""), first["msg"]
    if first["type"] == "value_error":
        return f"{name}: {to_printable(str(first['ctx']['error']))}"
    allowed = message.removeprefix("Input should ").partition(",")[0]
    return f"{name}: {escape_controls(format_value(first['input']))}: must {allowed}"


def _command_error(error: Exception, arguments: Sequence[str]) -> int:
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
    """Return the line about an internal error.

    Args:
        error: the error.

    Returns:
        The line.
    """
    return f"unexpected {type(error).__name__}: {one_line(error)} ({DEBUG}=1 shows the trace)"


def is_debugging() -> bool:
    """Return True if the user requests the trace of errors."""
    return os.environ.get(DEBUG, "") not in ("", "0")


def print_line(text: str, label: str = "causeway") -> None:
    """Print one line on standard error; the middle of a long one is omitted.

    Args:
        text: the text.
        label: the prefix.
    """
    if len(text) > _MAX_CHARACTERS + 2 * _END_CHARACTERS:
        text = f"{text[:_MAX_CHARACTERS]} ... {text[-_END_CHARACTERS:]}"
    with contextlib.suppress(OSError):
        print(f"{label}: {text}", file=sys.stderr, flush=True)


def one_line(error: BaseException) -> str:
    """Return the first non-empty line of an error's text, shortened.

    Args:
        error: the error.

    Returns:
        The line.
    """
    lines = [to_printable(line) for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else "no further text")[:_MAX_CHARACTERS]


def to_printable(text: str) -> str:
    """Escape an untrusted text to one line without terminal controls.

    Args:
        text: the text.

    Returns:
        The line.
    """
    return "".join(character if character.isprintable() else "?" for character in " ".join(text.split()))


def _open_all_streams() -> None:
    """Open closed standard streams, or the next opened file would replace one."""
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
            stream.reconfigure(errors="backslashreplace")  # characters outside the terminal's encoding


def _discard_output() -> None:
    """Prevent errors at exit after the output was closed."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
