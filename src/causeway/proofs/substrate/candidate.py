"""The message queues of a candidate against the roots that the relay chain has (ICMP reference 3.4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

import numpy as np

from causeway.model.order import Groups
from causeway.proofs.errors import ProofError
from causeway.proofs.limits import MAX_PROOF_BYTES
from causeway.proofs.steps import Step
from causeway.proofs.substrate.egress import egress_queue_roots, require_size
from causeway.proofs.substrate.errors import (
    EgressRootMismatch,
    IngressChainMismatch,
    IngressCountMismatch,
    IngressRootMismatch,
    MissingEgressRoot,
    NotAPrefix,
)
from causeway.proofs.substrate.ordered import ordered_roots

BlockRoots = tuple[int, Sequence[tuple[int, bytes]]]
"""A relay block's number, and sender and root of each of its queues to one parachain, ascending by sender."""

BlockQueues = tuple[int, Sequence[tuple[int, Sequence[bytes]]]]
"""The same with the messages themselves."""


def verify_incoming(
    ingress: Iterable[BlockRoots], watermark: int, lists: Sequence[BlockQueues], limit: int = MAX_PROOF_BYTES
) -> tuple[Step, ...]:
    """Return the roots of the queues that a candidate consumes: all of ``ingress`` up to the block ``watermark``.

    Args:
        ingress: the runtime's list for the parachain, ascending by block.
        watermark: the number of the block that the candidate's new watermark is.
        lists: what the candidate consumes.
        limit: most bytes of messages that are read.

    Raises:
        NotAPrefix: the blocks are others, or in another order.
        IngressCountMismatch: a block's queues are more or fewer.
        IngressChainMismatch: a block's senders are others, or in another order.
        IngressRootMismatch: the messages of a queue hash to another root.
        OverLimit: the messages have more than ``limit`` bytes.
    """
    expected = [(block, list(queues)) for block, queues in ingress if block <= watermark]
    blocks = [block for block, _ in lists]
    if blocks != [block for block, _ in expected]:
        raise NotAPrefix(f"a candidate consumes {len(blocks)} blocks, they are not the {len(expected)} that are due")
    due: list[tuple[int, int, bytes]] = []
    given: list[Sequence[bytes]] = []
    wrong: ProofError | None = None
    for (block, roots), (_, queues) in zip(expected, lists, strict=True):
        # What is wrong with a block comes to light after the roots of the blocks before it.
        wrong = _wrong_shape(block, roots, queues)
        if wrong is not None:
            break
        due.extend((block, sender, root) for sender, root in roots)
        given.extend(messages for _, messages in queues)
    steps = _require_roots(due, given, limit)
    if wrong is not None:
        raise wrong
    return steps


def verify_outgoing(
    outgoing: Iterable[tuple[int, bytes]], posted: Sequence[tuple[int, bytes]], limit: int = MAX_PROOF_BYTES
) -> tuple[Step, ...]:
    """Return the roots of the queues that a candidate sends, which are those that its receipt posts.

    Args:
        outgoing: recipient and bytes of each message, in the order of sending.
        posted: the receipt's ``egress_queue_roots``.
        limit: most bytes of messages that are read.

    Raises:
        MissingEgressRoot: the recipients are others, or in another order.
        EgressRootMismatch: a recipient's messages hash to another root.
        OverLimit: the messages have more than ``limit`` bytes.
    """
    sent = list(outgoing)
    require_size((message for _, message in sent), limit)
    steps = []
    for found, claimed in zip_longest(egress_queue_roots(sent), posted):
        if found is None or claimed is None or found[0] != claimed[0]:
            has = "no further one" if found is None else str(found[0])
            says = "no further one" if claimed is None else str(claimed[0])
            raise MissingEgressRoot(f"a candidate posts a root for the recipient {says}, its messages are for {has}")
        if found[1] != claimed[1]:
            raise EgressRootMismatch(
                f"the messages to {found[0]} hash to the root {found[1].hex()}, posted is {claimed[1].hex()}"
            )
        steps.append(Step("root", f"queue to {found[0]}", found[1]))
    return tuple(steps)


def _wrong_shape(
    block: int, roots: Sequence[tuple[int, bytes]], queues: Sequence[tuple[int, Sequence[bytes]]]
) -> ProofError | None:
    if len(queues) != len(roots):
        return IngressCountMismatch(f"a candidate consumes {len(queues)} queues of block {block}, it has {len(roots)}")
    if [sender for sender, _ in queues] != [sender for sender, _ in roots]:
        return IngressChainMismatch(f"a candidate names other senders for block {block}, or in another order")
    return None


def _require_roots(
    due: Sequence[tuple[int, int, bytes]], given: Sequence[Sequence[bytes]], limit: int
) -> tuple[Step, ...]:
    messages = [message for queue in given for message in queue]
    require_size(messages, limit)
    counts = np.array([len(queue) for queue in given], dtype=np.int64)
    queues = Groups(np.cumsum(counts) - counts, counts, len(messages))
    steps = []
    for (block, sender, root), found in zip(due, ordered_roots(messages, queues), strict=True):
        digest = found.tobytes()
        if digest != root:
            raise IngressRootMismatch(
                f"the queue of {sender} in block {block} hashes to the root {digest.hex()}, posted is {root.hex()}"
            )
        steps.append(Step("root", f"queue of {sender} in block {block}", digest))
    return tuple(steps)
