"""Run fuzz targets guided by the coverage of ``causeway_proofs``.

``python -m tests.fuzz.run NAME --runs N --seconds N --seed N`` ends with 0 when nothing was found. Otherwise it shows
the exception, writes the input in hexadecimal, and ends with another number. ``--list`` names the targets.

Of several names, ``--at-once N`` at a time, it prints a line of JSON each as they end: name, exit code, what it showed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fuzz.targets import Target

MEMORY_MEBIBYTES = 2048
"""What the process may take in all; the modules alone take about 100.

The instrumentation keeps what it sees compared: targets that compare arrays (``ics23-many``) grow by some 40 MiB for
a thousand inputs here, and not at all without it.
"""

INPUT_SECONDS = 10
"""Time limit of one input: the slowest honest one takes a hundredth of that, instrumented."""

LONGEST_INPUT = 4096
"""Longest input tried, in bytes: all seeds are shorter."""


SHOWN = 4000
"""Maximum number of printed characters of one of several targets."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz each target in its own process; return the exit code of such a process, not 0 if there is one."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument("name", nargs="*", help="the target")
    parser.add_argument("--all", action="store_true", help="fuzz all targets")
    parser.add_argument("--list", action="store_true", help="name all targets and end")
    parser.add_argument("--runs", type=int, default=-1, help="inputs to try; without it, as many as the time allows")
    parser.add_argument("--seconds", type=int, default=0, help="time to try them in; without it, as long as they take")
    parser.add_argument("--seed", type=int, default=1, help="the same seed and runs try the same inputs (not 0)")
    parser.add_argument("--at-once", type=int, default=1, help="how many targets at a time")
    chosen = parser.parse_args(arguments)
    if not chosen.list and chosen.runs < 0 and not chosen.seconds:
        parser.error("one of --runs and --seconds must say when to stop")
    if chosen.seed <= 0 or chosen.at_once <= 0:
        parser.error(f"--seed and --at-once must be above 0, not {chosen.seed} and {chosen.at_once}")

    import atheris
    from causeway_proofs.jit_cache import loop_files, module_of

    # Modules are instrumented when they are imported, so no proof module may be imported before this. Those of the
    # targets are instrumented too: their assertions are worth reaching. Compiled loops have no coverage, and loops not
    # yet compiled could not be compiled with it.
    loops = list(map(module_of, loop_files()))
    with atheris.instrument_imports(include=["causeway_proofs", "tests.fuzz"], exclude=loops):
        from tests.fuzz.targets import all_targets

        targets = all_targets()
    if chosen.list:
        print("\n".join(targets))
        return 0
    if chosen.all:
        chosen.name = list(targets)
    unknown = [name for name in chosen.name if name not in targets]
    if unknown or not chosen.name:
        parser.error(f"no target is called {', '.join(unknown) or 'nothing'}; --list names them")
    with tempfile.TemporaryDirectory(prefix="causeway-fuzz-") as folder:
        return _fuzz_all({name: targets[name] for name in chosen.name}, Path(folder), chosen)


@dataclass(frozen=True)
class _Running:
    """The process that fuzzes one target, and its folder."""

    name: str
    process: multiprocessing.process.BaseProcess
    folder: Path


def _fuzz_all(targets: Mapping[str, Target], folder: Path, chosen: argparse.Namespace) -> int:
    waiting, alone, code = list(targets), len(targets) == 1, 0
    running: dict[int, _Running] = {}
    while waiting or running:
        while waiting and len(running) < chosen.at_once:
            name = waiting.pop(0)
            one = _start_target(name, targets[name], folder / str(len(waiting)), chosen, alone)
            running[one.process.sentinel] = one
        for sentinel in wait(list(running)):
            assert isinstance(sentinel, int)
            one = running.pop(sentinel)
            one.process.join()
            ended = one.process.exitcode or 0
            code = code or ended
            found = [
                f"{one.name}: {path.name}: {path.read_bytes().hex()}"
                for path in sorted(_findings_folder(one.folder).iterdir())
            ]
            if alone:
                print(*found, sep="\n", file=sys.stderr)
            else:
                text = "\n".join([(one.folder / "shown").read_text(errors="replace"), *found])
                print(json.dumps([one.name, ended, text[-SHOWN:]]), flush=True)
    return code


def _start_target(name: str, target: Target, folder: Path, chosen: argparse.Namespace, alone: bool) -> _Running:
    """Start to fuzz a target. Its output is printed at once if it is ``alone``, else it goes to the file ``shown``."""
    test, seeds = target
    inputs = folder / "inputs"
    for made in (inputs, _findings_folder(folder)):
        made.mkdir(parents=True)
    for number, seed in enumerate(seeds):
        (inputs / f"seed-{number}").write_bytes(seed)
    limits = [
        f"-runs={chosen.runs}",
        f"-max_total_time={chosen.seconds}",
        f"-seed={chosen.seed}",
        f"-max_len={max(LONGEST_INPUT, *map(len, seeds))}",
        f"-rss_limit_mb={MEMORY_MEBIBYTES}",
        f"-timeout={INPUT_SECONDS}",
        f"-artifact_prefix={_findings_folder(folder)}/",
        "-print_final_stats=1",
    ]
    # The fuzzer ends its process without returning, so the folder would remain.
    given = (test, _findings_folder(folder), [*limits, str(inputs)], None if alone else folder / "shown")
    process = multiprocessing.get_context("fork").Process(target=_fuzz, args=given)
    process.start()
    return _Running(name, process, folder)


def _findings_folder(folder: Path) -> Path:
    return folder / "found"


def _fuzz(target: Callable[[bytes], None], found: Path, options: list[str], shown_in: Path | None) -> None:
    import atheris

    if shown_in is not None:
        with shown_in.open("wb") as file:
            for stream in (1, 2):
                os.dup2(file.fileno(), stream)

    def shown(data: bytes) -> None:
        try:
            target(data)
        except BaseException as error:
            # The fuzzer stores inputs over its time and memory limits, but not those that raise.
            (found / type(error).__name__).write_bytes(data)
            raise

    atheris.Setup(["fuzz", *options], shown)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
