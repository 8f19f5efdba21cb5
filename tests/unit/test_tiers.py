"""Test tiers."""

from __future__ import annotations

import pytest

from tests import tiers


@pytest.mark.parametrize(("tier", "lakes"), [("quick", 10), ("test", 40), ("ci", 200), ("soak", 5_000)])
def test_generated_lakes_by_tier(tier: str, lakes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tiers.VARIABLE, tier)
    assert tiers.generated_lakes() == lakes


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
