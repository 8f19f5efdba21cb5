"""Options of programs, which nobody changes: what a handler kept in them would be in no state and no root."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

_TEXT = "options are read-only: keep in the state what changes, or change a copy (copy.deepcopy)"


class _Kept:
    """What refuses to be changed; copies and pickled copies are plain."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(_TEXT)

    __setitem__ = __delitem__ = __ior__ = __iadd__ = __imul__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse
    append = extend = insert = remove = reverse = sort = _refuse

    def __copy__(self) -> Any:
        return _thawed(self)

    def __deepcopy__(self, _: object) -> Any:
        return _thawed(self)

    def __reduce_ex__(self, _: object) -> tuple[Any, ...]:
        return read_only, (_thawed(self),)


class ReadOnlyDict(_Kept, dict[Any, Any]):
    """A table of options."""

    def copy(self) -> dict[Any, Any]:
        """Return a table that can be changed."""
        return dict(self)

    def __or__(self, other: Any) -> Any:
        return dict(self) | other


class ReadOnlyList(_Kept, list[Any]):
    """A list of options."""

    def copy(self) -> list[Any]:
        """Return a list that can be changed."""
        return list(self)


def read_only(options: Any) -> Any:
    """Return options of which no part can be changed; a handler that tries fails with ``TypeError``."""
    if isinstance(options, Mapping):
        return ReadOnlyDict({key: read_only(value) for key, value in options.items()})
    if isinstance(options, list | tuple):
        return ReadOnlyList(map(read_only, options))
    return options


def _thawed(options: Any) -> Any:
    if isinstance(options, dict):
        return {key: _thawed(value) for key, value in options.items()}
    return [_thawed(value) for value in options] if isinstance(options, list) else options


NO_OPTIONS = ReadOnlyDict()

__all__ = ["NO_OPTIONS", "ReadOnlyDict", "ReadOnlyList", "read_only"]
