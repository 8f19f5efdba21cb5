"""Verifiers of ICS-23 proofs in Rust and Go: built for a run of the benchmark, each in a process of its own."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NamedTuple, Self

from benchmarks.process import BenchmarkFailed

BUILD_SECONDS = 600
LENGTH_BYTES = 4

Claim = tuple[bytes, bytes, bytes]
"""A key, its value and the encoded proof."""


class NativeMissing(Exception):
    """A verifier cannot be built here; the text says why."""


class Native(NamedTuple):
    """A verifier that was built.

    Attributes:
        name: the package it is made of.
        program: the program.
        version: the package's version.
    """

    name: str
    program: str
    version: str


class Toolchain(NamedTuple):
    """How one is built: the folder of its source, the package, where its version stands, the command, what it makes."""

    source: Traversable
    package: str
    pinned: tuple[str, str]
    command: tuple[str, ...]
    program: str


RUST = "ics23 (Rust)"
GO = "cosmos/ics23 (Go)"

CARGO = ("cargo", "build", "--quiet", "--release"), "target/release/verifier"
CARGO_FAST = ("cargo", "build", "--quiet"), "target/debug/verifier"
"""Built in less time, for programs whose speed does not matter."""
GO_BUILD = ("go", "build", "-o", "verifier", "."), "verifier"
_SOURCES = resources.files("benchmarks.proofs").joinpath("native")

ICS23 = (
    Toolchain(_SOURCES.joinpath("rust"), RUST, ("Cargo.toml", 'ics23 = "='), *CARGO),
    Toolchain(_SOURCES.joinpath("go"), GO, ("go.mod", "github.com/cosmos/ics23/go v"), *GO_BUILD),
)


def build(folder: str, toolchains: Sequence[Toolchain] = ICS23) -> tuple[list[Native], list[str]]:
    """Build what can be built into an empty folder; return it, and for each of the others why not."""
    built: list[Native] = []
    left_out: list[str] = []
    for toolchain in toolchains:
        try:
            built.append(_build(toolchain, Path(folder, toolchain.source.name)))
        except NativeMissing as missing:
            left_out.append(str(missing))
    return built, left_out


def _build(toolchain: Toolchain, folder: Path) -> Native:
    tool = shutil.which(toolchain.command[0])
    if tool is None:
        raise NativeMissing(f"{toolchain.command[0]} is not on PATH")
    _copy(toolchain.source, folder)
    try:
        done = subprocess.run(
            [tool, *toolchain.command[1:]], cwd=folder, capture_output=True, text=True, timeout=BUILD_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise NativeMissing(f"{toolchain.command[0]} could not build it within {BUILD_SECONDS} s") from None
    if done.returncode:
        reason = [*done.stderr.strip().splitlines(), "no reason given"][0]
        raise NativeMissing(f"{toolchain.command[0]} could not build it: {reason}")
    manifest, before = toolchain.pinned
    version = (folder / manifest).read_text().split(before)[1].split()[0].split('"')[0]
    return Native(toolchain.package, str(folder / toolchain.program), version)


def _copy(source: Traversable, folder: Path) -> None:
    folder.mkdir(parents=True)
    for entry in source.iterdir():
        if entry.is_dir():
            _copy(entry, folder / entry.name)
        else:
            (folder / entry.name).write_bytes(entry.read_bytes())


class NativeVerifier:
    """A built verifier with claims under one root; ``measure`` verifies all of them ``times`` times.

    Args:
        native: the verifier.
        spec: the name of the proof spec.
        root: the root of all claims.
        claims: what is verified.
        times: how often in one measurement.
    """

    def __init__(self, native: Native, spec: str, root: bytes, claims: Sequence[Claim], times: int) -> None:
        self._name = native.name
        work = Path(f"{native.program}.{spec}")
        work.write_bytes(b"".join(record(part) for part in _parts(spec, root, claims)))
        self._process = subprocess.Popen(
            [native.program, str(work), str(times)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def measure(self) -> tuple[float, float]:
        """Do the work once and return the seconds it took by the program's own clock, and of the processor.

        Raises:
            BenchmarkFailed: a claim was not accepted.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline().split()
        if len(answer) != 2:
            raise BenchmarkFailed(f"{self._name}: {answer[0] if answer else 'the process ended'}")
        seconds, processor = answer
        return float(seconds), float(processor)


def verdicts(native: Native, claims: Iterable[tuple[str, bytes, bytes, bytes, bytes]]) -> list[str]:
    """Return what a verifier says of claims (spec, root, key, value or nothing, proof): true, false, or stopped.

    Raises:
        BenchmarkFailed: it did not answer.
    """
    return answers(native, (part for spec, *rest in claims for part in (spec.encode(), *rest)), "verdicts")


def answers(native: Native, records: Iterable[bytes], *mode: str) -> list[str]:
    """Return the words that a program prints of a file of records.

    Raises:
        BenchmarkFailed: it did not end well.
    """
    work = Path(f"{native.program}.claims")
    work.write_bytes(b"".join(record(part) for part in records))
    command = [native.program, str(work), *mode]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS)
    if done.returncode:
        raise BenchmarkFailed(f"{native.name}: {done.stderr.strip()[-200:]}")
    return done.stdout.split()


def _parts(spec: str, root: bytes, claims: Iterable[Claim]) -> Iterable[bytes]:
    yield spec.encode()
    yield root
    for claim in claims:
        yield from claim


def record(part: bytes) -> bytes:
    """Return bytes with their length in front, as the programs read them."""
    return len(part).to_bytes(LENGTH_BYTES, "little") + part
