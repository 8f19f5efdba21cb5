"""Where commands may write what a user asks for: not into a lake, and over nothing unasked."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from causeway_proofs.errors import InvalidInput

_SVG = b"<svg"


@contextlib.contextmanager
def name_ledger_errors(place: str) -> Iterator[None]:
    """Name the ledger in errors about what is damaged in it."""
    from causeway.ledger.commits import LedgerDamaged

    try:
        yield
    except LedgerDamaged as error:
        raise InvalidInput(f"{place}: {error}") from None


def require_place(what: str, place: str) -> None:
    """Raise ``InvalidInput`` for a place without a name. ``what``: names it in the error."""
    if not place:
        raise InvalidInput(f"{what}: empty; allowed: a folder or URI")


def make_folder(option: str, path: Path) -> None:
    """Make a folder. Raises ``InvalidInput`` where none can be, or be written to."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = "is no folder" if isinstance(error, FileExistsError | NotADirectoryError) else error.strerror
        raise InvalidInput(f"{option} {path}: {why}") from None


def require_writable(option: str, path: Path, lake: str | None) -> None:
    """Refuse what is no file, on which a command could wait for ever, and one inside a lake, which nothing but the
    lake's own commands writes. Raises ``InvalidInput``.

    ``option``: the one that names the file, for the error. ``lake``: a folder or URI.
    """
    try:
        there = path.exists() and not (path.is_file() or path.is_char_device())
    except OSError as error:
        raise InvalidInput(f"{option} {path}: cannot be written: {error.strerror}") from None
    if there:
        raise InvalidInput(f"{option} {path}: is no file")
    if lake is None:
        return
    from causeway.storage.files import Storage

    place = Storage(lake)
    try:
        inside = place.is_local and path.resolve().is_relative_to(Path(place.absolute("")).resolve())
    except (OSError, RuntimeError):  # what Python makes of links that lead to themselves
        raise InvalidInput(f"{option} {path}: cannot be written: its links lead nowhere") from None
    if inside:
        raise InvalidInput(f"{option} {path}: is inside the lake {lake}; allowed: a file elsewhere")


def require_svg_target(option: str, path: Path, lake: str | None) -> None:
    """Refuse a place for a drawing that cannot be written, or that holds anything but an SVG drawing.

    Args:
        option: the option that names the file, for the error.
        path: the file.
        lake: a folder or URI that nothing but its own commands writes into.

    Raises:
        InvalidInput: The place is refused.
    """
    require_writable(option, path, lake)
    there = path.exists()
    try:
        with path.open("a+b") as file:
            file.seek(0)
            begin = file.read(len(_SVG))
        if not there:
            path.unlink()
    except OSError as error:
        raise InvalidInput(f"{option} {path}: cannot be written: {error.strerror}") from None
    if begin and begin != _SVG:
        raise InvalidInput(f"{option} {path}: exists and is no SVG drawing; name another file")


def refuse_overwrite(option: str, path: Path, *, overwrite: bool) -> None:
    """Refuse to write over what is there, unless that is asked for (``--overwrite``). Raises ``InvalidInput``."""
    if path.exists() and not path.is_char_device() and not overwrite:
        raise InvalidInput(f"{option} {path}: exists already; name another file, or add --overwrite")


def write_files(contents: Mapping[Path, bytes], options: Mapping[Path, str]) -> None:
    """Write files: none where one of them cannot be opened. Raises ``InvalidInput``.

    ``options``: what named each file, for errors.
    """
    made = [path for path in contents if not path.exists()]
    path = Path()
    try:
        for path in contents:
            path.open("ab").close()
    except OSError as error:
        for each in made:
            each.unlink(missing_ok=True)
        raise _unwritten(options[path], path, error) from None
    try:
        for path, content in contents.items():
            path.write_bytes(content)
    except OSError as error:
        raise _unwritten(options[path], path, error) from None


def _unwritten(option: str, path: Path, error: OSError) -> InvalidInput:
    return InvalidInput(f"{option} {path}: cannot be written: {error.strerror or error}")
