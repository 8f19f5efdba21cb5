"""``domains``: messages with their responses a second, every proof of both checked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from causeway_proofs.errors import InvalidInput

from benchmarks.cycles.phases import FIRST, LAST
from benchmarks.cycles.runs import EXECUTORS, figures, microseconds, opened, require_known, run_cycles
from benchmarks.domains.workload import DEPTH, PERIOD, Domains
from benchmarks.machine import machine
from benchmarks.process import call
from benchmarks.rounds import Progress

SECTIONS = ("load", "channels", "keys")
"""A network of many channels; the same traffic over few and many; the same traffic beside more and more entries."""

WARM_UP = 20_000
"""Messages before all others: what is imported late is there."""

FAR = 2**18
"""``max_future_nonces`` where few channels carry everything."""

CHANNELS_OF_DOMAINS = {1: 2, 10: 5, 105: 15}
"""Channels, and how many domains have so many between them."""

PHASES: dict[str, tuple[str, ...]] = {
    **FIRST,
    "receipts": ("causeway.protocols.xdm.kernel:settle_receipts",),
    "four proofs checked": ("causeway.protocols.xdm.block:read_envelopes", "causeway.protocols.xdm.block:validate"),
    "messages in": ("causeway.protocols.xdm.block:prepare", "causeway.protocols.xdm.block:process_messages"),
    "programs": ("causeway.protocols.xdm.block:handle",),
    "responses, requests out": (
        "causeway.protocols.xdm.block:store_responses",
        "causeway.protocols.xdm.block:acknowledge",
        "causeway.protocols.xdm.block:send_messages",
    ),
    "proofs made": ("causeway.protocols.xdm.kernel:prove",),
    "tries of final blocks": (
        "causeway.protocols.xdm.storage:ChainTries.keep",
        "causeway.protocols.xdm.storage:ChainTries.show",
        "causeway.protocols.xdm.storage:ChainTries.move",
    ),
    "entries encoded": ("causeway.protocols.xdm.consensus.commitment:storage_changes",),
    "tries": (
        "causeway.protocols.xdm.storage:ChainTries.change",
        "causeway.protocols.xdm.storage:ChainTries.roots",
    ),
    "consensus blocks": ("causeway.protocols.xdm.consensus.commitment:_anchored",),
    **LAST,
}
"""The functions of each phase, as ``benchmarks.cycles.phases`` has them."""


def bench_domains(
    messages: int = 20_000,
    *,
    ticks: int = 20,
    domains: int = 15,
    programs: int = 15_000,
    payload_bytes: int = 64,
    sections: Sequence[str] = SECTIONS,
    executors: Sequence[str] = EXECUTORS,
    others: Sequence[int] = (10_000, 100_000, 1_000_000),
    repeats: int = 3,
    master: str = "local[2]",
    lake_folder: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure messages with their responses through the whole pipeline; return figures that fit JSON.

    Args:
        messages: calls a block, in each of ``ticks`` blocks; each is a request and a response.
        domains, programs, payload_bytes: the network, and the bytes of a call's body.
        sections: some of ``SECTIONS``.
        executors: some of ``EXECUTORS``; ``channels`` and ``keys`` are measured in process.
        others: entries more that each domain's storage has, one after the other (``keys``).
        repeats: how often each is measured, after a warm-up.
        master: Spark's; there are as many tasks, and buckets, as it has cores.
        lake_folder: where lakes are made and removed again.
        progress: told what is being measured.

    Raises:
        InvalidInput: a number is out of range, or a name unknown.
        BenchmarkFailed: a process dies, or not every message is answered.
    """
    if repeats < 1 or any(number < 1 for number in others):
        raise InvalidInput("repeats, others: at least 1 is allowed")
    require_known((sections, SECTIONS), (executors, EXECUTORS))
    work = Domains(messages, ticks, domains, programs, payload_bytes)
    about = machine()
    tell = progress if progress is not None else lambda text: None
    found: dict[str, list[dict[str, Any]]] = {}
    if "load" in sections:
        found["load"] = []
        for executor in executors:
            tell(executor.replace("_", " "))
            # A process of its own for each: what it has in memory at most is its own.
            found["load"].append(call(_measure, work, executor, repeats, master, lake_folder, True))
    if "channels" in sections:
        found["channels"] = []
        for number, count in CHANNELS_OF_DOMAINS.items():
            tell(f"{number} channels")
            few = replace(work, domains=count, programs=programs // count * count, ahead=FAR)
            found["channels"].append(call(_measure, few, EXECUTORS[0], repeats, master, lake_folder, False))
    if "keys" in sections:
        found["keys"] = []
        for number in others:
            tell(f"{number:,} other entries")
            full = replace(work, domains=2, programs=programs // 2 * 2, ahead=FAR, others=number)
            found["keys"].append(call(_measure, full, EXECUTORS[0], repeats, master, lake_folder, False))
    return {
        "benchmark": "domains",
        "machine": about,
        "load_after": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "master": master,
        "workload": {
            "messages": messages,
            "ticks": ticks,
            "domains": domains,
            "programs": programs,
            "payload_bytes": payload_bytes,
            "archiving_depth": DEPTH,
            "challenge_period": PERIOD,
        },
        "repeats": repeats,
        **found,
    }


def _measure(
    work: Domains, name: str, repeats: int, master: str, lake_folder: str | None, clocked: bool
) -> dict[str, Any]:
    """Measure a workload with one executor, in this process."""
    partitions, made = opened(name, master, lake_folder)
    run_cycles(replace(work, messages=min(work.messages, WARM_UP), ticks=1), partitions, made, lake_folder)
    runs = [run_cycles(work, partitions, made, lake_folder) for _ in range(repeats)]
    # What is sent in one of these blocks is taken, and answered, in others of them, as many as the calls take.
    full = [took for run in runs for took in run["blocks"][len(run["blocks"]) - work.ticks : work.ticks]]
    row = figures(work, runs, full, "messages")
    row |= {"channels": work.channels, "others": work.others, "executor": name, "tasks": partitions}
    if name == "in_process" and clocked:
        row["phases"] = microseconds(work, PHASES, lake_folder)
    return row
