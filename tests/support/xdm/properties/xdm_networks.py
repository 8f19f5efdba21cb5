"""Random networks of the oracle for cross-domain messages: users, faults of gossip, forks and fraudulent receipts."""

import random
from dataclasses import replace

from tests.spec.xdm.channels import close_channel, initiate_channel, send_message
from tests.spec.xdm.endpoints import transfer
from tests.spec.xdm.network import PROGRAM, Network
from tests.spec.xdm.options import Options
from tests.spec.xdm.proofs import Kind
from tests.spec.xdm.values import CONSENSUS, Chain, EndpointRequest, Receipt

ALICE, BOB, ROOT = (name.ljust(32) for name in (b"alice", b"bob", b"root"))
FUNDS = {b"alice": 100_000, b"bob": 300, b"root": 10_000}
PAYLOADS = (b"hello", b"", b"!refused", b"*panic", b"#heavy", b"x" * 200)


def network(options: Options | None = None, domains: int = 2, **rest) -> Network:
    return Network(options or Options(), domains, FUNDS, **rest)


class Faults:
    """Gossip that drops, delays, repeats and alters."""

    def __init__(self, rng: random.Random, strength: float) -> None:
        self.rng, self.strength = rng, strength

    def __call__(self, data: bytes, kind: Kind, dst: Chain, relayer: str) -> list[tuple[int, bytes]]:
        if self.rng.random() >= self.strength:
            return [(0, data)]
        fault = self.rng.randrange(4)
        if fault == 0:
            return []
        if fault == 1:
            return [(self.rng.randrange(1, 6), data)]
        if fault == 2:
            return [(0, data), (self.rng.randrange(3), data)]
        altered = bytearray(data)
        altered[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
        return [(0, bytes(altered)), (1, data)]


def fraudulent(er: Receipt) -> Receipt:
    """A receipt that shows another state, and takes value for itself."""
    return replace(er, final_state_root=bytes(31) + b"f", transfers_in={CONSENSUS: 0})


def act(net: Network, rng: random.Random) -> None:
    """What users call in one block."""
    chain, dst = rng.sample(sorted(net.chains), 2)
    net.call(chain, transfer, ALICE, dst, rng.choice((BOB, BOB, BOB, bytes(32), b"short")), rng.randrange(3, 60))
    where, dst = rng.sample(sorted(net.chains), 2)
    net.call(where, send_message, ALICE, dst, EndpointRequest(PROGRAM, rng.choice((PROGRAM, 9)), rng.choice(PAYLOADS)))
    if rng.random() < 0.05:
        net.call(chain, initiate_channel, ROOT, dst)
    if rng.random() < 0.03:
        channels = sorted(net.chains[chain].state.channels)
        if channels:
            net.call(chain, close_channel, ROOT, *rng.choice(channels))


def run(
    seed: int, options: Options, domains: int = 2, blocks: int = 70, faults: float = 0.3, forks: bool = True
) -> Network:
    """A network after `blocks` blocks of use, and as many again as it takes to come to rest."""
    rng = random.Random(seed)
    net = network(options, domains)
    for a in sorted(net.chains):
        for b in sorted(net.chains):
            if a < b:
                who = ROOT if options.initiate_by == "root" else ALICE
                net.call(*rng.choice(((a, initiate_channel, who, b), (b, initiate_channel, who, a))))
    net.step(22)
    net.gossip = Faults(rng, faults)
    for _ in range(blocks):
        if rng.random() < 0.5:
            act(net, rng)
        if forks and rng.random() < 0.1:
            net.reorganise(rng.randrange(1, options.archiving_depth))
        if forks and rng.random() < 0.05:
            domain = rng.randrange(domains)
            net.frauds[domain, net.chains[domain].block + 1] = fraudulent
        net.step()
    net.gossip = Faults(rng, 0)
    net.step(45)
    return net
