"""Run the tier soak: everything that takes hours, one step after the other.

    make soak
    make soak ARGS="relays fuzz"    # some of its steps

A step that fails does not stop the others. The closing line names the verdict, the commit, the date, the steps and the
duration; record it in docs/reference/verification.md.
"""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.tiers import VARIABLE

ROOT = Path(__file__).resolve().parents[1]

WORKERS = os.environ.get("WORKERS", "2")
"""Number of processes that share the tests."""

EVERY = "slow or not slow or verifiers"
"""The marker expression of all tests: those of other verifiers run only where it names them."""


@dataclass(frozen=True)
class Step:
    """A step of the soak: its name, its module, and the arguments of Python for it."""

    name: str
    about: str
    arguments: tuple[str, ...]

    def run(self) -> int:
        """Run the step in its own process and return its exit code."""
        environment = {**os.environ, VARIABLE: "soak", "CAUSEWAY_KILLS": os.environ.get("CAUSEWAY_KILLS", "25")}
        return subprocess.run([sys.executable, *self.arguments], cwd=ROOT, env=environment, check=False).returncode


STEPS = (
    Step(
        "tests",
        "all tests, also the slow ones and those of other verifiers, with 5,000 generated lakes and 25 kills",
        ("-m", "pytest", "-n", WORKERS, "--dist", "loadfile", "--no-loadscope-reorder", "-m", EVERY),
    ),
    Step(
        "versions",
        "the tests of Spark under PySpark 4.1 and 4.2",
        ("-m", "tests.versions"),
    ),
    Step(
        "relays",
        "two served lakes and their relays under 200 hostile clients, killed at random, for an hour",
        ("-m", "tests.support.common.soak", "--minutes", "60", "--clients", "200", "--between-kills", "40"),
    ),
    Step(
        "xnet",
        "two deployments that exchange 200,000 calls, killed at random",
        ("-m", "tests.support.common.xnet_soak", "--calls", "100000"),
    ),
    Step(
        "fuzz",
        "every decoder and verifier, for a minute each",
        ("-m", "tests.fuzz.run", "--seconds", "60", "--at-once", "2", "--all"),
    ),
)


def find_commit() -> str:
    """Return the commit that is checked out, with a plus sign if files differ from it."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain") else "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the steps and print the closing line.

    Args:
        arguments: Names of steps, or none for all.

    Returns:
        0 if every step passed, otherwise 1.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("steps", nargs="*", metavar="STEP", help="a step to run; without any, all are run")
    parser.add_argument("--list", action="store_true", help="list the steps and exit")
    chosen = parser.parse_args(arguments)
    unknown = set(chosen.steps) - {step.name for step in STEPS}
    if unknown:
        parser.error(f"unknown step {min(unknown)} (allowed: {', '.join(step.name for step in STEPS)})")
    if chosen.list:
        print(*(f"{step.name:<8}{step.about}" for step in STEPS), sep="\n")
        return 0
    steps = [step for step in STEPS if step.name in chosen.steps or not chosen.steps]
    commit, date, begun, failed = find_commit(), datetime.datetime.now(datetime.UTC).date(), time.monotonic(), []
    for step in steps:
        print(f"== {step.name}: {step.about}", flush=True)
        code = step.run()
        if code:
            print(f"== {step.name}: failed with {code}", flush=True)
            failed.append(step.name)
    hours, minutes = divmod(round((time.monotonic() - begun) / 60), 60)
    verdict = f"FAILED ({', '.join(failed)})" if failed else "PASSED"
    names = ", ".join(step.name for step in steps)
    print(f"soak: {verdict}. commit {commit}, {date}, {names}, {hours} h {minutes:02} min", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
