"""Work in processes of its own: its memory is told apart, and goes with it."""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from causeway_proofs.errors import CausewayError

SPAWN = multiprocessing.get_context("spawn")


class BenchmarkFailed(CausewayError):
    """A process of the benchmark failed, or something measured did not do what it was measured for."""


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return ``function(*arguments)``, run in a process of its own."""
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=_call, args=(theirs, function, arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        return answer(ours)
    except BaseException:
        process.terminate()
        raise
    finally:
        process.join()


class NotDone(BenchmarkFailed):
    """A process did not do its work within the time or memory that it was given."""


def call_within(seconds: float, memory: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return ``call(function, *arguments)``.

    Raises:
        NotDone: the process took more than so many seconds, or its resident memory more than so many bytes.
        BenchmarkFailed: as of ``call``.
    """
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=_call, args=(theirs, function, arguments), daemon=True)
    process.start()
    theirs.close()
    end, page = time.monotonic() + seconds, os.sysconf("SC_PAGE_SIZE")
    try:
        while not ours.poll(_EVERY):
            if time.monotonic() > end:
                raise NotDone(f"not done within {seconds:,.0f} s")
            with suppress(FileNotFoundError, ValueError, IndexError):
                if int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * page > memory:
                    raise NotDone(f"took more than {memory / 2**30:.1f} GiB")
        return answer(ours)
    except BaseException:
        process.kill()
        raise
    finally:
        process.join()


_EVERY = 0.2
"""Seconds after which a process is looked at again."""


def _call(pipe: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        pipe.send((True, function(*arguments)))
    except Exception:  # told to the process that asked
        pipe.send((False, traceback.format_exc()))


def answer(pipe: Connection) -> Any:
    """Return what the other process sends: (whether it went well, what came of it).

    Raises:
        BenchmarkFailed: it did not go well, or the process ended without a word.
    """
    try:
        good, content = pipe.recv()
    except EOFError:
        raise BenchmarkFailed("a process of the benchmark ended early; did the machine run out of memory?") from None
    if not good:
        raise BenchmarkFailed(f"a process of the benchmark failed: {content.strip().splitlines()[-1]}")
    return content
