"""Drives one fuzz target, guided by the coverage of ``causeway.proofs``.

``python -m tests.fuzz.run NAME --runs N --seconds N --seed N`` ends with 0 when nothing was found. Otherwise it shows
the exception, writes the input in hexadecimal, and ends with another number. ``--list`` names the targets.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

MEMORY_MEBIBYTES = 2048
"""What the process may take in all; the modules alone take about 100.

The instrumentation keeps what it sees compared: targets that compare arrays (``ics23-many``) grow by some 40 MiB for
a thousand inputs here, and not at all without it.
"""

INPUT_SECONDS = 10
"""How long one input may take: the slowest honest one takes a hundredth of that, instrumented."""

LONGEST_INPUT = 4096
"""Longest input tried, in bytes: all seeds are shorter."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz one target in a process of its own and return that process's end."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument("name", nargs="?", help="the target")
    parser.add_argument("--list", action="store_true", help="name all targets and end")
    parser.add_argument("--runs", type=int, default=-1, help="inputs to try; without it, as many as the time allows")
    parser.add_argument("--seconds", type=int, default=0, help="time to try them in; without it, as long as they take")
    parser.add_argument("--seed", type=int, default=1, help="the same seed and runs try the same inputs (not 0)")
    chosen = parser.parse_args(arguments)
    if not chosen.list and chosen.runs < 0 and not chosen.seconds:
        parser.error("one of --runs and --seconds must say when to stop")
    if chosen.seed <= 0:
        parser.error(f"--seed must be above 0, not {chosen.seed}")

    import atheris

    # Modules are instrumented when they are imported, so nothing of the package may come before this. Those of the
    # targets are too: what they assert is worth reaching.
    with atheris.instrument_imports(include=["causeway.proofs", "tests.fuzz"]):
        from tests.fuzz.targets import all_targets

        targets = all_targets()
    if chosen.list:
        print("\n".join(targets))
        return 0
    if chosen.name not in targets:
        parser.error(f"no target is called {chosen.name}; --list names them")
    target, seeds = targets[chosen.name]
    with tempfile.TemporaryDirectory(prefix="causeway-fuzz-") as folder:
        inputs, found = Path(folder, "inputs"), Path(folder, "found")
        for made in (inputs, found):
            made.mkdir()
        for number, seed in enumerate(seeds):
            (inputs / f"seed-{number}").write_bytes(seed)
        limits = [
            f"-runs={chosen.runs}",
            f"-max_total_time={chosen.seconds}",
            f"-seed={chosen.seed}",
            f"-max_len={max(LONGEST_INPUT, *map(len, seeds))}",
            f"-rss_limit_mb={MEMORY_MEBIBYTES}",
            f"-timeout={INPUT_SECONDS}",
            f"-artifact_prefix={found}/",
            "-print_final_stats=1",
        ]
        # The fuzzer ends its process without coming back, so that the folder would stay.
        given = (target, found, [*limits, str(inputs)])
        child = multiprocessing.get_context("fork").Process(target=_fuzz, args=given)
        child.start()
        child.join()
        for path in sorted(found.iterdir()):
            print(f"{chosen.name}: {path.name}: {path.read_bytes().hex()}", file=sys.stderr)
    return child.exitcode or 0


def _fuzz(target: Callable[[bytes], None], found: Path, options: list[str]) -> None:
    import atheris

    def shown(data: bytes) -> None:
        try:
            target(data)
        except BaseException as error:
            # The fuzzer keeps inputs that take too long or too much, but not those that raise.
            (found / type(error).__name__).write_bytes(data)
            raise

    atheris.Setup(["fuzz", *options], shown)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
