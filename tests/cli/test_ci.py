"""The tiers ci and soak: an omitted or unfinished step fails."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import soak

ROOT = Path(__file__).resolve().parents[2]

MAKEFILE = """
test:
	@test -z "$$PYTHONDONTWRITEBYTECODE"
	@echo 'tier '$$CAUSEWAY_TIER
	@case "$(ARGS)" in \\
	*slow*) sleep {slow} ;; \\
	*verifiers*) exit {verifiers} ;; \\
	esac
	@echo '===== 5 passed in 0.10s ====='

demo setup check docs:
	@echo 'no problem'
"""


@pytest.fixture
def run(tmp_path: Path):
    """Run .ci/run in a small repository with a Makefile for the test."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("chromium", "npm", "apt-get"):
        (programs / name).write_text("#!/bin/sh\nexit 1\n")
        (programs / name).chmod(0o755)

    def run(seconds: int, slow: int = 0, verifiers: int = 0) -> tuple[int, list[str]]:
        repository = tmp_path / "repository"
        (repository / ".ci").mkdir(parents=True)
        shutil.copy(ROOT / ".ci" / "run", repository / ".ci" / "run")
        (repository / "Makefile").write_text(MAKEFILE.format(slow=slow, verifiers=verifiers))
        git = ("git", "-C", str(repository), "-c", "user.name=t", "-c", "user.email=t@example.org")
        for arguments in (("init", "--quiet"), ("add", "."), ("-c", "commit.gpgsign=false", "commit", "-qm", "t")):
            subprocess.run([*git, *arguments], check=True, capture_output=True)
        environment = {
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "CAUSEWAY_CI_SECONDS": str(seconds),
            "MAKELEVEL": "1",  # as in a step of the tier, which make runs
            "PYTHONDONTWRITEBYTECODE": "1",  # as in many containers
        }
        done = subprocess.run(
            [repository / ".ci" / "run"], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        return done.returncode, done.stdout.splitlines()

    return run


def test_all_steps_run_in_the_tier_ci(run) -> None:
    code, lines = run(100)
    assert code == 0 and lines[-1] == "ci: PASSED"
    assert [line for line in lines if line.startswith("== ")][:-1] == [
        "== demo: make demo",
        "== setup: make setup",
        "== test: make test ARGS=-m 'slow or not slow' --durations=25",
        "== check: make check",
        "== docs: make docs",
        "== verifiers: make test ARGS=-m verifiers tests/verifiers",
    ]
    assert lines.count("tier ci") == 2
    closing = {name: f"{name}: ===== 5 passed in 0.10s =====" for name in ("test", "verifiers")}
    closing |= {name: f"{name}: no problem" for name in ("demo", "setup", "check", "docs")}
    assert lines[-7:-1] == [closing[name] for name in ("demo", "setup", "test", "check", "docs", "verifiers")]


def test_omitted_step_fails(run) -> None:
    code, lines = run(0)
    assert code == 1
    assert "== verifiers: left out, no time remains of 0 seconds" in lines
    names = ("demo", "setup", "test", "check", "docs", "verifiers")
    assert lines[-1] == f"ci: FAILED. {'; '.join(f'{name} left out' for name in names)}"


def test_unfinished_step_fails(run) -> None:
    code, lines = run(4, slow=60)
    assert code == 1 and lines[-1].startswith("ci: FAILED. test not finished; check left out")


def test_failed_step_does_not_stop_the_others(run) -> None:
    code, lines = run(100, verifiers=3)
    assert (code, lines[-1]) == (1, "ci: FAILED. verifiers failed")
    assert "test: ===== 5 passed in 0.10s =====" in lines


def test_soak_prints_verdict_commit_and_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    codes = {"relays": 0, "xnet": 1}
    monkeypatch.setattr(soak.Step, "run", lambda step: codes[step.name])
    assert soak.main(["relays"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(f"soak: PASSED. commit {soak.find_commit()}, ") and last.endswith(", relays, 0 h 00 min")
    assert soak.main(["relays", "xnet"]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert "== xnet: failed with 1" in printed and printed[-1].startswith("soak: FAILED (xnet). commit ")
    with pytest.raises(SystemExit):
        soak.main(["week"])
    assert "unknown step week (allowed: tests, versions, relays, xnet, fuzz)" in capsys.readouterr().err


def test_every_soak_step_is_a_module() -> None:
    for step in soak.STEPS:
        if step.name != "tests":
            assert (ROOT / Path(*step.arguments[1].split("."))).with_suffix(".py").is_file()
