"""The command line: ``causeway``. One file a command; what they share is in ``shell``, ``watch`` and ``memory``.

Exit codes: 0 done and all guarantees hold, 1 a guarantee is broken, 2 bad input (one line on standard error), 3
something unexpected (one line too), 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    from causeway.cli.shell import execute

    sys.exit(execute(sys.argv[1:] if arguments is None else arguments, _build, "causeway"))


def _build() -> Callable[..., object]:
    from causeway.cli.app import build

    return build()
