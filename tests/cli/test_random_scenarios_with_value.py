"""Random scenarios of the protocols with value and forks (``properties.examined_scenarios``)."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.support.properties.examined_scenarios import examine, examples
from tests.support.properties.random_scenarios import scenarios
from tests.tiers import sized

pytestmark = pytest.mark.slow


@examples(sized(10, 2_500))
@given(scenarios(("xdm", "icmp")))
def test_many_random_scenarios(capsys: pytest.CaptureFixture[str], text: str) -> None:
    examine(text, capsys)
