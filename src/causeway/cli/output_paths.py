"""Validate output paths: not inside a lake, and no overwriting without consent."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from causeway_proofs.errors import InvalidInput

_SVG = b"<svg"


@contextlib.contextmanager
def name_ledger_errors(place: str) -> Iterator[None]:
    """Add the ledger to errors about corrupted files.

    Args:
        place: path or URI of the ledger.
    """
    from causeway.ledger.commits import LedgerDamaged

    try:
        yield
    except LedgerDamaged as error:
        raise InvalidInput(f"{place}: {error}") from None


def require_place(what: str, place: str) -> None:
    """Reject an empty path.

    Args:
        what: name of the argument, for the error.
        place: the path.

    Raises:
        InvalidInput: the path is empty.
    """
    if not place:
        raise InvalidInput(f"{what}: empty; allowed: a folder or URI")


def make_folder(option: str, path: Path) -> None:
    """Create a folder.

    Args:
        option: the option with the path, for the error.
        path: the folder.

    Raises:
        InvalidInput: it cannot be created or written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = "is no folder" if isinstance(error, FileExistsError | NotADirectoryError) else error.strerror
        raise InvalidInput(f"{option} {path}: {why}") from None


def require_writable(option: str, path: Path, lake: str | None) -> None:
    """Reject a path that is no regular file, or inside a lake.

    Other files (pipes) could block a command for ever. Only its own commands write into a lake.

    Args:
        option: the option with the path, for the error.
        path: the file.
        lake: folder or URI, or None.

    Raises:
        InvalidInput: the path is rejected.
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
    except (OSError, RuntimeError):  # Python's error for a symbolic link loop
        raise InvalidInput(f"{option} {path}: cannot be written: its links lead nowhere") from None
    if inside:
        raise InvalidInput(f"{option} {path}: is inside the lake {lake}; allowed: a file elsewhere")


def require_svg_target(option: str, path: Path, lake: str | None) -> None:
    """Reject a path that is not writable, or has a file other than an SVG drawing.

    Args:
        option: the option with the path, for the error.
        path: the file.
        lake: folder or URI that only its own commands write into.

    Raises:
        InvalidInput: the path is rejected.
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
    """Reject an existing file without ``--overwrite``.

    Args:
        option: the option with the path, for the error.
        path: the file.
        overwrite: allow to replace it.

    Raises:
        InvalidInput: the file exists.
    """
    if path.exists() and not path.is_char_device() and not overwrite:
        raise InvalidInput(f"{option} {path}: exists already; name another file, or add --overwrite")


def write_files(contents: Mapping[Path, bytes], options: Mapping[Path, str]) -> None:
    """Write several files, or none if one of them cannot be opened.

    Args:
        contents: contents by path.
        options: the option with each path, for errors.

    Raises:
        InvalidInput: a file cannot be written.
    """
    created = [path for path in contents if not path.exists()]
    path = Path()
    try:
        for path in contents:
            path.open("ab").close()
    except OSError as error:
        for each in created:
            each.unlink(missing_ok=True)
        raise _write_error(options[path], path, error) from None
    try:
        for path, content in contents.items():
            path.write_bytes(content)
    except OSError as error:
        raise _write_error(options[path], path, error) from None


def _write_error(option: str, path: Path, error: OSError) -> InvalidInput:
    return InvalidInput(f"{option} {path}: cannot be written: {error.strerror or error}")
