"""Networks of every engine for the hazards of section 6 of the reference, and assertions on their logs."""

from collections.abc import Callable

import pytest

from tests.spec.xdm.events import Event
from tests.spec.xdm.guarantees import violations
from tests.spec.xdm.options import Options
from tests.spec.xdm.state import ChannelState
from tests.spec.xdm.values import Chain
from tests.support.xdm.properties.xdm_engines import ENGINES, Engine

Make = Callable[..., Engine]
FAST = Options(archiving_depth=2, challenge_period=2, resubmit_after=6)
ONE_WAY, ROUND_TRIP = 9, 18
"""Blocks from a call on one domain until its effect on another, and until the answer is back (with FAST)."""


@pytest.fixture(name="make", params=list(ENGINES))
def every_engine(request: pytest.FixtureRequest) -> Make:
    return ENGINES[request.param]


def opened(make: Make, options: Options = FAST, src: Chain = 0, dst: Chain = 1, **rest) -> Engine:
    """A network with an open channel 0 from src to dst."""
    e = make(options, **rest)
    e.initiate(src, dst)
    e.step(ROUND_TRIP)
    assert e.channel(src, dst, 0).state == ChannelState.OPEN
    assert e.channel(dst, src, 0).state == ChannelState.OPEN
    return e


def rows(e: Engine, event: str, chain: Chain | None = None) -> list[Event]:
    return [row for row in e.events() if row.event == event and chain in (None, row.chain)]


def results(e: Engine, chain: Chain) -> list[str | None]:
    """What a chain was answered."""
    return [row.result for row in rows(e, "OutboxMessageResponse", chain)]


def refusals(e: Engine, chain: Chain, call: str | None = None) -> list[str | None]:
    return [row.error for row in rows(e, "Refused", chain) if call in (None, row.call)]


def sound(e: Engine) -> None:
    assert violations(e.record()) == []
