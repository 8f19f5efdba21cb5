"""The page on verdicts of other verifiers lists the claims submitted to them."""

from __future__ import annotations

from pathlib import Path

from tests.verifiers.test_ic_others import SHOWN, TIMES, own_verdict
from tests.verifiers.test_substrate_others import storage_cases
from tests.verifiers.test_tendermint_others import CASES

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "other-verifiers.md").read_text()


def rows(heading: str) -> list[str]:
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return [line for line in section.splitlines() if line.startswith("| ")][1:]


def test_page_lists_every_claim_with_its_verdict() -> None:
    bounds = [f"| {name} | {verdict} |" for name, (_, verdict) in CASES.items()]
    assert rows("Tendermint headers at the bounds") == bounds
    certificates = {name: own_verdict(claim) for name, claim in {**SHOWN, **TIMES}.items()}
    assert rows("IC certificates") == [f"| {name} | {str(holds).lower()} |" for name, holds in certificates.items()]
    assert f"| {len(storage_cases())} cases in layouts V0 and V1" in PAGE
