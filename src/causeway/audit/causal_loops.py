"""Compiled loops over causal links: replay in causal order, and overtaking effects."""

from __future__ import annotations

from typing import Any

import numpy as np
from causeway_proofs.jit import BYTES, BYTES_OUT, NOTHING, ROWS, compile_loop, read_only_arrays

WORDS, CODES = read_only_arrays("uint64"), read_only_arrays("int32")

MAX_SCANNED = 1 << 12
"""Maximum number of links of a chain scanned to count contradicted messages."""

MIN_WORK, WORK = 1 << 26, 1 << 8
"""Work limit to resolve rings, in scanned links: a constant, and a number for each link."""


@compile_loop(allocates=False)
def is_cause_pending(link: Any, at: Any, starts: Any, source: Any, causes: Any, effects: Any) -> Any:
    """Return True if the cause of a link is in a block that is not replayed yet."""
    cause_chain = source[link]
    return at[cause_chain] < starts[cause_chain + 1] and causes[link] >= effects[at[cause_chain]]


@compile_loop(allocates=False)
def block_end(link: Any, end: Any, effects: Any) -> Any:
    """Return the end of the links into a link's block; ``end``: of those into its chain."""
    height = effects[link] if link < end else np.uint64(0)
    while link < end and effects[link] == height:
        link += 1
    return link


@compile_loop(allocates=False)
def first_awaited_chain(
    chain: Any, at: Any, stops: Any, starts: Any, source: Any, causes: Any, effects: Any, marks: Any
) -> Any:
    """Return the first chain that the next block of a chain waits for."""
    found = np.int64(len(at))
    for link in range(at[chain], stops[chain]):
        if source[link] < found and not marks[link] and is_cause_pending(link, at, starts, source, causes, effects):
            found = source[link]
    return found


@compile_loop(allocates=False)
def last_link_until(chain: Any, height: Any, at: Any, starts: Any, effects: Any) -> Any:
    """Return the last link into an unreplayed block of a chain up to a height."""
    low, high = at[chain], starts[chain + 1]
    while high - low > 1:
        middle = (low + high) // 2
        if effects[middle] <= height:
            low = middle
        else:
            high = middle
    return low


@compile_loop(allocates=False)
def count_awaited_messages(
    chain: Any,
    its: Any,
    at: Any,
    stops: Any,
    starts: Any,
    source: Any,
    causes: Any,
    effects: Any,
    messages: Any,
    marks: Any,
) -> Any:
    """Return the number of messages a next block awaits from a chain, and their last height."""
    count, top = np.int64(0), np.uint64(0)
    for link in range(at[chain], stops[chain]):
        if source[link] == its and not marks[link] and is_cause_pending(link, at, starts, source, causes, effects):
            count += messages[link]
            top = max(top, causes[link])
    return count, top


@compile_loop(NOTHING, [ROWS, CODES, WORDS, WORDS, CODES, BYTES_OUT])
def replay_blocks(starts: Any, source: Any, causes: Any, effects: Any, messages: Any, marks: Any) -> None:
    """Replay blocks in causal order, and mark the links that prevent it.

    A block is replayed after the previous block of its chain and after the causes of all links into it. If no block can
    be replayed, some chains wait for each other in a ring. Then the links of one pair of neighbours are marked: those
    that contradict the most messages. The work for rings is limited; beyond it, links into unreplayed blocks are marked
    as undecided.

    Args:
        starts: First link into each chain, and the number of links. Links are sorted by chain and ``effects``.
        source: Chain of each cause.
        causes: Height of each cause.
        effects: Height of each effect.
        messages: Number of messages of each link.
        marks: Output: 1 for marked links, 2 for undecided ones.
    """
    chains, links = len(starts) - 1, len(source)
    at, stops, scanned = starts[:-1].copy(), starts[:-1].copy(), starts[:-1].copy()
    for each in range(chains):
        stops[each] = block_end(at[each], starts[each + 1], effects)
    waits_for = np.full(chains, -1, np.int64)
    waiting, following = np.full(links, -1, np.int64), np.full(chains, -1, np.int64)
    stack, height = np.arange(chains)[::-1].copy(), chains
    visited, ring = np.full(chains, -1, np.int64), np.full(chains, -1, np.int64)
    turn, first = 0, 0
    work = np.int64(MIN_WORK) + np.int64(WORK) * links
    while True:
        while height > 0:
            height -= 1
            ready = stack[height]
            while at[ready] < starts[ready + 1]:
                link, end = scanned[ready], stops[ready]
                while link < end and (
                    marks[link] != 0 or not is_cause_pending(link, at, starts, source, causes, effects)
                ):
                    link += 1
                scanned[ready] = link
                if link < end:
                    until = last_link_until(source[link], causes[link], at, starts, effects)
                    waits_for[ready] = until
                    following[ready] = waiting[until]
                    waiting[until] = ready
                    break
                at[ready], stops[ready] = end, block_end(end, starts[ready + 1], effects)
                other = waiting[end - 1]
                while other >= 0:
                    stack[height] = other
                    height += 1
                    other = following[other]
        while first < chains and at[first] == starts[first + 1]:
            first += 1
        if first == chains:
            return
        # Follow each chain to the first one that it waits for, until a chain repeats.
        chain = np.int64(first)
        while work > 0 and visited[chain] != turn:
            visited[chain] = turn
            work -= 1 + stops[chain] - at[chain]
            chain = np.int64(first_awaited_chain(chain, at, stops, starts, source, causes, effects, marks))
        start = chain
        while work > 0 and ring[chain] != turn:
            ring[chain] = turn
            work -= 1 + stops[chain] - at[chain]
            chain = np.int64(first_awaited_chain(chain, at, stops, starts, source, causes, effects, marks))
        # Choose the pair of the ring whose links contradict the most messages.
        worst, most, fewest = np.int64(-1), np.int64(-1), np.int64(0)
        while work > 0:
            its = np.int64(first_awaited_chain(chain, at, stops, starts, source, causes, effects, marks))
            own, top = count_awaited_messages(chain, its, at, stops, starts, source, causes, effects, messages, marks)
            against, link = np.int64(0), at[its]
            end = min(starts[its + 1], link + MAX_SCANNED)
            while link < end and effects[link] <= top:
                in_ring = ring[source[link]] == turn and not marks[link]
                if in_ring and is_cause_pending(link, at, starts, source, causes, effects):
                    against += messages[link]
                link += 1
            work -= link - at[its]
            equal = against == most
            if against > most or (equal and own < fewest) or (equal and own == fewest and chain < worst):
                worst, most, fewest = chain, against, own
            chain = its
            if chain == start:
                break
        if work <= 0:
            for other in range(chains):
                for link in range(at[other], starts[other + 1]):
                    marks[link] = marks[link] or 2
            return
        its = np.int64(first_awaited_chain(worst, at, stops, starts, source, causes, effects, marks))
        for link in range(at[worst], stops[worst]):
            if source[link] == its and is_cause_pending(link, at, starts, source, causes, effects):
                marks[link] = 1
        # The chain no longer waits for that block: retry it.
        before, other = np.int64(-1), waiting[waits_for[worst]]
        while other != worst:
            before, other = other, following[other]
            work -= 1
        if before < 0:
            waiting[waits_for[worst]] = following[worst]
        else:
            following[before] = following[worst]
        stack[height] = worst
        height += 1
        turn += 1


@compile_loop(NOTHING, [ROWS, WORDS, WORDS, ROWS, BYTES, BYTES_OUT])
def mark_overtaking(starts: Any, causes: Any, effects: Any, lane: Any, ordered: Any, found: Any) -> None:
    """Mark links with an effect before that of a link with an earlier cause.

    Args:
        starts: First link of each group, and the number of links. Links of a group are sorted by ``causes``.
        causes: Height of each cause; a group has one pair of chains.
        effects: Height of each effect.
        lane: Lane of each link.
        ordered: Links of lanes whose own order another check covers; overtaking within such a lane is not marked.
        found: Output: 1 for marked links.
    """
    lanes = np.int64(0)
    for link in range(len(lane)):
        lanes = max(lanes, lane[link] + 1)
    latest_of = np.zeros(lanes, np.uint64)
    for group in range(len(starts) - 1):
        latest, link = np.uint64(0), starts[group]
        while link < starts[group + 1]:
            stop = link
            while stop < starts[group + 1] and causes[stop] == causes[link]:
                if latest > effects[stop]:
                    found[stop] = 0 if ordered[stop] and latest_of[lane[stop]] > effects[stop] else 1
                stop += 1
            for each in range(link, stop):
                latest_of[lane[each]] = max(latest_of[lane[each]], effects[each])
                latest = max(latest, effects[each])
            link = stop
        for each in range(starts[group], starts[group + 1]):
            latest_of[lane[each]] = np.uint64(0)


__all__ = ["mark_overtaking", "replay_blocks"]
