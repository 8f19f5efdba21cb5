"""Random scenarios of all protocols run without an internal error, with equal results on every executor.

``tests.support.properties.examined_scenarios`` has the checks.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given

from tests.support.common.small_lakes import OUT_OF_ORDER
from tests.support.properties.examined_scenarios import examine, examples
from tests.support.properties.random_scenarios import scenarios
from tests.tiers import sized

FEW = 5
"""Scenarios of the usual tests."""


@examples(FEW)
@given(scenarios())
@example(OUT_OF_ORDER)
def test_random_scenarios(capsys: pytest.CaptureFixture[str], text: str) -> None:
    examine(text, capsys)


@pytest.mark.slow
@examples(sized(10, 2_500))
@given(scenarios(("ic", "ibc")))
def test_many_random_scenarios(capsys: pytest.CaptureFixture[str], text: str) -> None:
    examine(text, capsys)
