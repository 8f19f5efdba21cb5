"""The statements of 1.2 and 1.3 that a log of gossip can break: G4 for pools, G7, G8; L1 and L2.

They judge rows by the relay chain's rows `Lists` and know nothing of how nodes decide. Rows of one node are taken in
the order of the log; those who are connected without rows of their own are nobody's concern.

Decisions.
- G7: with `ancestors`, a node has (1 + a) times as many blocks to consider; the bound of accesses is the square of
  these on either side, and two a block besides (headers of both, and topics where they meet), and the two look-ups that
  do not depend on heads.
- G8 counts within one connection and, with `seen_until = purge`, until the sender purges the topic. A queue "came from"
  a peer when it was good or was an echo: what was refused is not remembered (hazard 14).
- L1 is eventual; so it is judged at the end of a log, of which the caller knows that nothing is under way and nothing
  was lost. It asks that a queue reached its node, not that the pool still has it. Who shares a leaf only by way of
  others that do not share it need not be reached.
- L3 has no row of its own: what piles up is what L2 leaves and no candidate takes.
"""

from collections.abc import Collection, Iterable, Mapping

from tests.spec.icmp.events import Fetch, Got, Heads, Leaf, NodeId, Peer, Pool, Queue, Read, Row, Sent
from tests.spec.icmp.history import Finding, History, Record, once, unchecked, violated
from tests.spec.icmp.options import MAX_CHAIN_HEADS, Options
from tests.spec.icmp.relay import Hash, ParaId
from tests.spec.icmp.trie import topics

Key = tuple[Hash, Hash]


class Watch:
    """What the rows of gossip so far say of every node."""

    def __init__(self, record: Record) -> None:
        self.options = record.options
        self.history = History(record)
        self.leaves: dict[NodeId, tuple[Hash, ...]] = {}
        self.pool: dict[NodeId, dict[Key, Pool]] = {}
        self.reached: set[tuple[NodeId, Key]] = set()
        self.connected: set[tuple[NodeId, NodeId]] = set()
        self._live: dict[Hash, dict[Key, set[ParaId]] | None] = {}

    def note(self, row: Row) -> None:
        if isinstance(row, Leaf):
            self.leaves[row.node] = row.leaves
        elif isinstance(row, Peer):
            pair = (row.node, row.peer)
            (self.connected.add if row.change == "connect" else self.connected.discard)(pair)
        elif isinstance(row, Pool) and row.topic is not None and row.root is not None:
            key, pool = (row.topic, row.root), self.pool.setdefault(row.node, {})
            if row.change == "put":
                pool[key] = row
                self.reached.add((row.node, key))
            else:
                pool.pop(key, None)

    def ingress(self, B: Hash, p: ParaId) -> list[tuple[int, list[tuple[ParaId, Key]]]] | None:
        """The list of p, every root with its topic; None where rows are missing."""
        chain, lists = self.history.chain(B), self.history.lists.get((B, p))
        if chain is None or lists is None:
            return None
        found = []
        for n, pairs in lists.ingress or ():
            keyed = [(x, (topic, root)) for x, root in pairs for topic in topics(self.options, chain[n], x, p, root)]
            found.append((n, keyed))
        return found

    def live(self, B: Hash) -> dict[Key, set[ParaId]] | None:
        """What is unrouted at a block, with the senders; None where rows are missing."""
        if B not in self._live:
            self._live[B] = self._unrouted(B)
        return self._live[B]

    def _unrouted(self, B: Hash) -> dict[Key, set[ParaId]] | None:
        if self.history.chain(B) is None:
            return None
        found: dict[Key, set[ParaId]] = {}
        for p in sorted(self.history.books(B).active):
            lists = self.ingress(B, p)
            if lists is None:
                return None
            for _, keyed in lists:
                for x, key in keyed:
                    found.setdefault(key, set()).add(x)
        return found

    def considered(self, node: NodeId) -> dict[Key, set[ParaId]] | None:
        """All that is unrouted at the node's leaves, and at as many ancestors as it may keep."""
        found: dict[Key, set[ParaId]] = {}
        for leaf in self.leaves.get(node, ()):
            chain = self.history.chain(leaf)
            for B in () if chain is None else chain[-1 - self.options.ancestors :]:
                live = self.live(B)
                if live is None:
                    return None
                found.update(live)
            if chain is None:
                return None
        return found


def g4_pools(record: Record) -> list[Finding]:
    """Nothing comes into a pool but what a chain posted that is expected, with the messages that it posted."""
    w = Watch(record)
    found: list[Finding] = []
    posted: dict[Hash, set[Hash]] = {}
    for row in record.rows:
        if isinstance(row, Queue):
            posted.setdefault(row.root, set()).add(row.messages_hash)
    for row in record.rows:
        w.note(row)
        if not isinstance(row, Pool) or row.change != "put" or row.topic is None or row.root is None:
            continue
        live = w.considered(row.node)
        if live is None:
            found.append(unchecked("G4", f"what {row.node} expects is not in the log", row))
        elif (row.topic, row.root) not in live:
            found.append(violated("G4", f"{row.node} took in a queue that no leaf of its own expects", row))
        elif row.root not in posted:
            found.append(unchecked("G4", f"there is no row Queue of what {row.node} took in", row))
        elif row.messages_hash not in posted[row.root]:
            found.append(violated("G4", f"{row.node} took in other messages than those of the root", row))
    return once(found)


def most_accesses(options: Options) -> int:
    blocks = MAX_CHAIN_HEADS * (1 + options.ancestors)
    return blocks * blocks + 3 * blocks + 2


def g7_bounded_work(record: Record) -> list[Finding]:
    """Bounded lists of heads, bounded look-ups, no state but of leaves, and nothing dead in a pool after a purge."""
    w, most = Watch(record), most_accesses(record.options)
    found: list[Finding] = []
    for row in record.rows:
        w.note(row)
        if isinstance(row, Leaf) and len(row.leaves) > MAX_CHAIN_HEADS:
            found.append(violated("G7", f"{row.node} has {len(row.leaves)} leaves", row))
        elif isinstance(row, Heads) and len(row.heads) > MAX_CHAIN_HEADS and row.error is None:
            found.append(violated("G7", f"{row.node} took in {len(row.heads)} heads of {row.peer}", row))
        elif isinstance(row, Read) and row.block not in w.leaves.get(row.node, ()):
            found.append(violated("G7", f"{row.node} read the state of a block that is no leaf of its own", row))
        elif isinstance(row, Sent | Got) and row.accesses > most:
            found.append(violated("G7", f"{row.node} needed {row.accesses} accesses, {most} are allowed", row))
        elif isinstance(row, Pool) and row.change == "sweep":
            found += dead(w, row)
    return once(found)


def dead(w: Watch, row: Pool) -> Iterable[Finding]:
    live, pool = w.considered(row.node), w.pool.get(row.node, {})
    if live is None:
        return [unchecked("G7", f"what is live at {row.node} is not in the log", row)] if pool else []
    topics_of_it = {topic for topic, _ in live}
    left = [put for (topic, _), put in pool.items() if topic not in topics_of_it]
    return [violated("G7", f"the pool of {row.node} has {len(left)} dead queues after a purge", *left)] if left else []


def g8_no_echo(record: Record) -> list[Finding]:
    """No queue goes to the peer that it came from, nor twice to one peer."""
    found: list[Finding] = []
    came: dict[tuple[NodeId, NodeId, Key], Row] = {}
    for row in record.rows:
        if isinstance(row, Peer):
            came = {key: before for key, before in came.items() if key[:2] != (row.node, row.peer)}
        elif isinstance(row, Pool) and row.change == "purge" and record.options.seen_until == "purge":
            came = {key: before for key, before in came.items() if key[0] != row.node or key[2][0] != row.topic}
        elif isinstance(row, Got) and row.verdict != "wasteful":
            came.setdefault((row.node, row.peer, (row.topic, row.root)), row)
        elif isinstance(row, Sent):
            before = came.setdefault((row.node, row.peer, (row.topic, row.root)), row)
            if before is not row:
                how = "sent it before" if isinstance(before, Sent) else "got it from there"
                found.append(violated("G8", f"{row.node} sent a queue to {row.peer} and {how}", before, row))
    return once(found)


def l1_reach(record: Record, holders: Mapping[NodeId, Collection[ParaId]]) -> list[Finding]:
    """What is unrouted at a leaf reached everybody who has that leaf and is connected, by others who have it, with
    somebody who has the queue. `holders`: of which chains a node has executed the blocks."""
    w = Watch(record)
    found: list[Finding] = []
    for row in record.rows:
        w.note(row)
    for leaf in dict.fromkeys(leaf for leaves in w.leaves.values() for leaf in leaves):
        live = w.live(leaf)
        if live is None:
            found.append(unchecked("L1", "what is unrouted at a leaf is not in the log"))
            continue
        for nodes in components(w, {node for node, leaves in w.leaves.items() if leaf in leaves}):
            for key, senders in sorted(live.items()):
                pooled = {node for node in nodes if key in w.pool.get(node, {})}
                have = pooled | {node for node in nodes if senders & set(holders.get(node, ()))}
                lack = sorted(node for node in nodes if (node, key) not in w.reached)
                if have and lack:
                    text = f"a queue of {sorted(senders)} that {sorted(have)} have did not reach {lack}"
                    pools = [w.pool.get(node, {}) for node in sorted(have)]
                    found.append(violated("L1", text, *[pool[key] for pool in pools if key in pool]))
    return once(found)


def components(w: Watch, nodes: set[NodeId]) -> list[set[NodeId]]:
    """The nodes in groups that are connected among themselves."""
    found: list[set[NodeId]] = []
    left = set(nodes)
    while left:
        group = {min(left)}
        while True:
            more = {b for a, b in w.connected if a in group and b in left} - group
            if not more:
                break
            group |= more
        left -= group
        found.append(group)
    return found


def l2_prefix(record: Record) -> list[Finding]:
    """A collator is given the longest run of blocks with all queues in its pool."""
    w = Watch(record)
    found: list[Finding] = []
    for row in record.rows:
        w.note(row)
        if not isinstance(row, Fetch):
            continue
        lists = w.ingress(row.block, row.para)
        if lists is None:
            found.append(unchecked("L2", f"the list of {row.para} is not in the log", row))
            continue
        prefix: list[int] = []
        for n, keyed in lists:
            if not all(key in w.pool.get(row.node, {}) for _, key in keyed):
                break
            prefix.append(n)
        if row.wanted != tuple(n for n, _ in lists) or row.complete_prefix != tuple(prefix):
            text = f"{row.node} was given {row.complete_prefix} of {row.wanted}, it had {prefix}"
            found.append(violated("L2", text, row))
    return once(found)


GOSSIP_CHECKS = (g4_pools, g7_bounded_work, g8_no_echo, l2_prefix)
"""Those that need no more than a log."""
