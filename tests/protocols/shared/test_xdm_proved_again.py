"""Repeated proofs of operators (XDM reference X-5)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.support.xdm.xdm_network import Network

CALLS, AGAIN = 24, 4


def proved_requests(net: Network) -> Iterator[tuple[int, int, int]]:
    """Run until all is answered; return block, nonce and expected nonce of each proved request to ``B``.

    The expected nonce is that of ``B`` at the height before.
    """
    for tick in range(200):
        if tick < CALLS:
            net.call(1, 2, bytes([tick]))
        channels = net.state["channels"]
        there = (channels["chain"] == net.names.index("B")) & (channels["foreign"] == net.names.index("A"))
        expected = int(channels["next_inbox"][there][0])
        net.block()
        rows = net.state["envelopes"]
        for nonce in rows["index"][(rows["source"] == net.names.index("A")) & (rows["substream"] == 0)].tolist():
            yield net.tick + 1, nonce, expected
        if tick >= CALLS and net.idle():
            return
    raise AssertionError("calls still wait")


@pytest.mark.parametrize(
    ("ahead", "halted"),
    [
        (2, True),
        (5, False),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((1, True), (1, False), (2, False), (5, True))),
    ],
)
def test_recently_proved_messages_are_not_proved_again(ahead: int, halted: bool) -> None:
    """The first lost message is proved again, unlike later ones proved just before."""
    kind = ("halt", "B", None) if halted else ("drop", "A", "B")
    options = {"resubmit_after": AGAIN, "max_future_nonces": ahead}
    net = Network(
        {"A": {1: "caller"}, "B": {2: "echo"}},
        balance=10**6,
        options=options,
        faults=[(*kind, 8, 17, {} if halted else {"every": 2})],
    )
    last: dict[int, int] = {}
    lost = 0
    for block, nonce, expected in proved_requests(net):
        assert block - last.get(nonce, -AGAIN) >= AGAIN, f"{nonce} is proved in blocks {last[nonce]} and {block}"
        assert expected <= nonce < expected + 2 * (ahead + 1), "no more than the other side may keep until then"
        lost += nonce in last
        last[nonce] = block
    assert lost and sorted(last) == np.arange(CALLS).tolist()
