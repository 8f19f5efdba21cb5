"""Where the time of a block goes: clocks around the functions that are its phases."""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

FIRST: dict[str, tuple[str, ...]] = {
    "traffic": ("benchmarks.cycles.workload:CycleTraffic.rows",),
    "reading": (
        "causeway.tick.reading:BucketReader.view",
        "causeway.tick.reading:BucketReader.entries",
        "causeway.tick.reading:BucketReader.rows",
        "causeway.tick.reading:BucketReader.past",
    ),
}
LAST: dict[str, tuple[str, ...]] = {
    "writing": ("causeway.tick.bucket:_Writer.write",),
}
"""The phases of a block under every protocol, before and after its own."""

PHASES: dict[str, tuple[str, ...]] = {
    **FIRST,
    "relaying": ("causeway.protocols.ibc.kernel:IbcKernel.plan",),
    "entries hashed again": ("causeway.protocols.ibc.block:entry_digests",),
    "proofs verified": ("causeway.protocols.ibc.block:verify_proofs",),
    "headers": ("causeway.protocols.ibc.calls.submission:_offer_headers", "causeway.protocols.ibc.kernel:certify"),
    "calls validated": (
        "causeway.protocols.ibc.calls.submission:submit_bulk",
        "causeway.protocols.ibc.calls.submission:_accepted",
    ),
    "handlers": ("causeway.protocols.ibc.block:run_handlers",),
    "pushing": ("causeway.protocols.ibc.block:_outgoing", "causeway.protocols.ibc.block:push"),
    "new entries hashed": ("causeway.protocols.ibc.queue_entries:entry_digests",),
    "trees": ("causeway.protocols.ibc.kernel:commit_stores",),
    "proofs made": ("causeway.protocols.ibc.store:Store.prove_runs",),
    **LAST,
}
"""The functions of each phase. What a phase calls that is a phase itself is not counted twice."""

REST = "rest"


class Clocks:
    """Processor seconds by phase; phases may lie in one another."""

    def __init__(self, phases: Mapping[str, tuple[str, ...]] = PHASES) -> None:
        self.seconds: dict[str, float] = dict.fromkeys([*phases, REST], 0.0)
        self._open = [REST]
        self._since = time.process_time()

    def _switch(self) -> None:
        now = time.process_time()
        self.seconds[self._open[-1]] += now - self._since
        self._since = now

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count what is done inside for a phase, and not for the one around it."""
        self._switch()
        self._open.append(name)
        try:
            yield
        finally:
            self._switch()
            self._open.pop()

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with a clock."""

        def clocked(*arguments: Any, **named: Any) -> Any:
            with self.phase(name):
                return function(*arguments, **named)

        return clocked

    def stop(self) -> dict[str, float]:
        """Return the seconds of all phases up to now."""
        self._switch()
        return dict(self.seconds)


@contextlib.contextmanager
def clocked_phases(phases: Mapping[str, tuple[str, ...]] = PHASES) -> Iterator[Clocks]:
    """Put clocks around the phases of this process's blocks while the body of the ``with`` statement runs."""
    clocks = Clocks(phases)
    before: list[tuple[Any, str, Any]] = []
    try:
        for phase, functions in phases.items():
            for name in functions:
                holder, attribute = _found(name)
                function = getattr(holder, attribute)
                before.append((holder, attribute, function))
                setattr(holder, attribute, clocks.around(phase, function))
        yield clocks
    finally:
        for holder, attribute, function in reversed(before):
            setattr(holder, attribute, function)


def _found(name: str) -> tuple[Any, str]:
    """Return the module or class that has a function, and the function's name there."""
    module, _, path = name.partition(":")
    holder: Any = importlib.import_module(module)
    *outer, attribute = path.split(".")
    for part in outer:
        holder = getattr(holder, part)
    return holder, attribute
