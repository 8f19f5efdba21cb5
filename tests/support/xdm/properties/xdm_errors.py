"""Names of the oracle's errors."""

from collections.abc import Callable

from tests.spec.xdm.errors import XdmError


def error_of(function: Callable[..., object], *arguments: object) -> str | None:
    """Return the name of the error of a call, None where there is none."""
    try:
        function(*arguments)
    except XdmError as error:
        return error.name
    return None
