"""Test tiers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import tiers

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("tier", "lakes"), [("quick", 10), ("test", 40), ("ci", 80), ("soak", 5_000)])
def test_generated_lakes_by_tier(tier: str, lakes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tiers.VARIABLE, tier)
    assert tiers.generated_lakes() == lakes


@pytest.mark.parametrize(("tier", "size"), [("quick", 2), ("test", 2), ("ci", 2), ("soak", 8)])
def test_all_values_of_a_repetition_run_in_the_soak(tier: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tiers.VARIABLE, tier)
    assert tiers.sized(2, 8) == size


@pytest.mark.parametrize("value", [None, ""])
def test_default_tier(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(tiers.VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(tiers.VARIABLE, value)
    assert tiers.current_tier() == "test"


def test_unknown_tier_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tiers.VARIABLE, "fast")
    with pytest.raises(ValueError, match=r"unknown tier 'fast' \(allowed: quick, test, ci, soak\)"):
        tiers.generated_lakes()


QUICK = (ROOT / "tests" / "quick.txt").read_text(encoding="utf-8").splitlines()
SOAK = (ROOT / "tests" / "soak.txt").read_text(encoding="utf-8").splitlines()
PACKAGES = sorted(path.parent.name for path in (ROOT / "src" / "causeway").glob("*/__init__.py"))
INDIRECT = {"testing": r"cw\.Network\("}
"""Content of a test of a package that no test imports by name."""


def test_quick_names_are_in_order() -> None:
    assert sorted(set(QUICK)) == QUICK


@pytest.mark.parametrize("names", [QUICK, SOAK], ids=["quick", "soak"])
def test_tier_lists_name_existing_tests(names: list[str]) -> None:
    assert len(set(names)) == len(names)
    for file, _, test in (name.partition("::") for name in names):
        defined = f"def {test.partition('[')[0]}(" if test else "def test_"  # a name without test is a whole file
        assert defined in (ROOT / file).read_text(encoding="utf-8"), (file, test)


@pytest.mark.parametrize("package", PACKAGES)
def test_quick_has_a_test_of_every_package(package: str) -> None:
    used = re.compile(INDIRECT.get(package, rf"^ *(?:from|import) causeway\.{package}\b"), re.MULTILINE)
    files = {name.partition("::")[0] for name in QUICK}
    assert any(used.search((ROOT / file).read_text(encoding="utf-8")) for file in files)


def test_page_lists_the_generated_lakes_of_every_tier() -> None:
    page = (ROOT / "docs" / "reference" / "verification.md").read_text(encoding="utf-8")
    stated = re.findall(r"^\| `(?:make |\.)(\w+)(?:/run)?` \| .* \| ([\d,]+) \| [^|]+ \|$", page, re.MULTILINE)
    assert {tier: int(lakes.replace(",", "")) for tier, lakes in stated} == tiers.LAKES
