"""The definitions of 2.1 as they are written, recursions and all.

They know the posted messages themselves, not the runtime: `posted[B, x, y]` is E(B, x, y) where it is not empty. The
runtime's lists are held against them. Recursion is the text's; so long chains are left to the runtime's own tests.
"""

from collections.abc import Mapping, Sequence, Set

from tests.spec.icmp.errors import IcmpError
from tests.spec.icmp.relay import Block, Hash, Mark, ParaId, Relay
from tests.spec.icmp.trie import R

Posted = Mapping[tuple[Hash, ParaId, ParaId], Sequence[bytes]]
Queues = dict[ParaId, Sequence[bytes]]
Roots = dict[ParaId, Hash]


def E(posted: Posted, B: Hash, x: ParaId, y: ParaId) -> Sequence[bytes]:
    return posted.get((B, x, y), [])


def Ingress(posted: Posted, paras: Set[ParaId], B: Hash, p: ParaId) -> Queues:
    """{ y -> E(B, y, p) | y != p }, ascending, empty ones dropped. `paras` are all that ever were."""
    return {y: E(posted, B, y, p) for y in sorted(paras) if y != p and E(posted, B, y, p)}


def root_form(queues: Queues) -> Roots:
    """R(Ingress(B, p))."""
    return {y: R(messages) for y, messages in queues.items()}


def Total(posted: Posted, paras: Set[ParaId], relay: Relay, B: Hash, p: ParaId) -> list[tuple[Block, Queues]]:
    block = relay.blocks[B]
    if block.parent is None:
        return []
    return [*Total(posted, paras, relay, block.parent, p), (block, Ingress(posted, paras, B, p))]


def Pending(
    posted: Posted, paras: Set[ParaId], relay: Relay, B: Hash, p: ParaId, watermark: Mark
) -> list[tuple[Block, Queues]]:
    """Ends at the watermark. A watermark that is not on the chain ends at genesis: WatermarkNotOnChain."""
    block = relay.blocks[B]
    if block.hash == watermark.hash:
        return []
    if block.parent is None:
        raise IcmpError("WatermarkNotOnChain")
    return [*Pending(posted, paras, relay, block.parent, p, watermark), (block, Ingress(posted, paras, B, p))]


def roots(lists: list[tuple[Block, Queues]]) -> list[tuple[Block, Roots]]:
    """R(Total), R(Pending): the same over R(Ingress)."""
    return [(block, root_form(queues)) for block, queues in lists]


def omitted(lists: list[tuple[Block, Roots]]) -> list[tuple[int, list[tuple[ParaId, Hash]]]]:
    """As the runtime makes it available: numbers, and no empty lists."""
    return [(block.number, sorted(found.items())) for block, found in lists if found]
