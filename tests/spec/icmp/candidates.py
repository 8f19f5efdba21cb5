"""What validators hold a candidate against (3.4), and how a collator collects what it may consume (3.9).

Decisions.
- A candidate's watermark is below the end of the list it was chosen from: with `exclusive` below its relay parent, with
  `inclusive` at most the relay parent; else NotAPrefix. "Any later block before the next entry" must count the entries
  that the list does not show yet: without this, a watermark on the relay parent would drop, unconsumed, what was posted
  in it (G3). 3.1 does not see it; so it is the validators' to refuse.
- Per block, step 3 goes through the number of queues, then all senders, then all roots ("checks in written order").
- `allow_empty_prefix = off` needs to know what the candidate's data are: `held` are the roots that the validator has.
- Egress is compared pair by pair in ascending order of recipients: another recipient, or none, is MissingEgressRoot.
- A chain that is not registered has no entries.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tests.spec.icmp.errors import IcmpError, ensure
from tests.spec.icmp.events import Ingress
from tests.spec.icmp.relay import Egress, Hash, Mark, ParaId, Receipt
from tests.spec.icmp.runtime import Runtime, ingress, upper
from tests.spec.icmp.trie import R

Lists = Sequence[tuple[int, Sequence[tuple[ParaId, Sequence[bytes]]]]]
Messages = Sequence[tuple[ParaId, bytes]]
Found = Mapping[tuple[int, Hash], Sequence[bytes]]
"""The messages of the queues that were found: by number of the block and root."""


@dataclass(frozen=True)
class Candidate:
    """A receipt with the proof of validity: what was consumed, and what was sent in the order of sending."""

    receipt: Receipt
    lists: Lists
    messages: Messages


def validate_incoming(
    rt: Runtime, B: Hash, p: ParaId, watermark: Mark, lists: Lists, held: Collection[Hash] = ()
) -> None:
    pending = ingress(rt, B, p) or ()
    ensure(watermark.number < max(upper(rt, B), 1), "NotAPrefix")
    expected = [(n, queues) for n, queues in pending if n <= watermark.number]
    ensure([n for n, _ in lists] == [n for n, _ in expected], "NotAPrefix")
    if rt.options.allow_empty_prefix == "off" and not lists and pending:
        ensure(not all(root in held for _, root in pending[0][1]), "NotAPrefix")
    for (_, queues), (_, roots) in zip(lists, expected, strict=True):
        ensure(len(queues) == len(roots), "IngressCountMismatch")
        ensure([sender for sender, _ in queues] == [sender for sender, _ in roots], "IngressChainMismatch")
        ensure([R(messages) for _, messages in queues] == [root for _, root in roots], "IngressRootMismatch")


def egress_queues(messages: Messages) -> dict[ParaId, list[bytes]]:
    """Stable sort by recipient: a queue for each that has messages."""
    queues: dict[ParaId, list[bytes]] = {}
    for to, message in sorted(messages, key=lambda pair: pair[0]):
        queues.setdefault(to, []).append(message)
    return queues


def egress_roots(messages: Messages) -> Egress:
    return tuple((to, R(queue)) for to, queue in egress_queues(messages).items())


def validate_outgoing(messages: Messages, egress_queue_roots: Egress) -> None:
    made = egress_roots(messages)
    for i in range(max(len(made), len(egress_queue_roots))):
        ensure(i < min(len(made), len(egress_queue_roots)), "MissingEgressRoot")
        ensure(made[i][0] == egress_queue_roots[i][0], "MissingEgressRoot")
        ensure(made[i][1] == egress_queue_roots[i][1], "EgressRootMismatch")


def validate(rt: Runtime, c: Candidate, held: Collection[Hash] = ()) -> str | None:
    """What a validator says of a candidate: the name of the first error, or None."""
    r = c.receipt
    try:
        validate_incoming(rt, r.relay_parent, r.para, r.watermark, c.lists, held)
        validate_outgoing(c.messages, r.egress_queue_roots)
    except IcmpError as error:
        return error.name
    return None


def collect(want: Ingress, found: Found) -> Lists:
    """The complete prefix (3.9 step 2): the longest run of blocks with all queues found."""
    prefix = []
    for n, roots in want:
        if any((n, root) not in found for _, root in roots):
            break
        prefix.append((n, [(sender, found[n, root]) for sender, root in roots]))
    return prefix


def missing(want: Ingress, found: Found) -> list[tuple[int, ParaId, Hash]]:
    """What the fallback asks the senders' validators for (3.9 step 3)."""
    return [(n, sender, root) for n, roots in want for sender, root in roots if (n, root) not in found]
