"""What operators prove again, and when (XDM reference X-5)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.unit.xdm_network import Network

CALLS, AGAIN = 24, 4


def proved(net: Network) -> Iterator[tuple[int, list[int], int]]:
    """Run until everything is answered: of each block the requests to ``B`` that are proved in it, and the nonce that
    ``B`` expected at the height before."""
    a, b = net.names.index("A"), net.names.index("B")
    for tick in range(200):
        if tick < CALLS:
            net.call(1, 2, bytes([tick]))
        channels = net.state["channels"]
        expected = int(channels["next_inbox"][(channels["chain"] == b) & (channels["foreign"] == a)][0])
        net.block()
        rows = net.state["envelopes"]
        yield net.tick + 1, rows["index"][(rows["source"] == a) & (rows["substream"] == 0)].tolist(), expected
        if tick >= CALLS and net.idle():
            return
    raise AssertionError("calls still wait")


@pytest.mark.parametrize("ahead", [1, 2, 5])
@pytest.mark.parametrize("what", ["halt", "drop"])
def test_what_comes_next_is_not_proved_again_because_what_was_before_it_had_been_lost(what: str, ahead: int) -> None:
    """The first that is lost is proved again, with those behind it that the other side may keep; the others, which were
    proved only just before, are not proved anew when it has arrived."""
    fault = ("halt", "B", None, 8, 17, {}) if what == "halt" else ("drop", "A", "B", 8, 17, {"every": 2})
    options = {"resubmit_after": AGAIN, "max_future_nonces": ahead}
    net = Network({"A": {1: "caller"}, "B": {2: "echo"}}, balance=10**6, options=options, faults=[fault])
    last: dict[int, int] = {}
    again = 0
    for block, nonces, expected in proved(net):
        lately = [nonce for nonce in nonces if block - last.get(nonce, -AGAIN) < AGAIN]
        assert expected not in lately, f"{expected} is proved in blocks {last[expected]} and {block}"
        assert not lately or (expected in nonces and max(lately) <= expected + ahead), f"block {block}: {lately}"
        assert all(expected <= nonce < expected + 2 * (ahead + 1) for nonce in nonces), "no more than may be kept"
        again += sum(nonce in last for nonce in nonces)
        last |= dict.fromkeys(nonces, block)
    assert again and sorted(last) == np.arange(CALLS).tolist()
