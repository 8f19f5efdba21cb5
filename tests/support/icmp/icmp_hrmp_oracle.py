"""The oracle beside a network with HRMP: after every tick both have the same channels, accounts, pages and errors.

Users, programs and what is planned are the kernel's; what the relay chain and the parachains make of it is said twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from causeway.core.frame import from_table
from causeway.protocols.relay_chain.options import IcmpOptions
from causeway.protocols.relay_chain.runtime import ParachainCall, ParachainCallKind
from causeway.protocols.shared.contents import encode_contents
from tests.spec.icmp import hrmp as spec
from tests.spec.icmp import hrmp_queues as queues

Rows = list[dict[str, Any]]

SIGNALS = {queues.SUSPEND: 1, queues.RESUME: 2}


class Oracle:
    """``late``: parachains that are not registered at genesis."""

    def __init__(self, options: IcmpOptions, paras: Sequence[int], late: set[int]) -> None:
        given = {name: getattr(options, name) for name in vars(spec.Config()) if hasattr(options, name)}
        self.config = spec.Config(**given, max_messages=options.max_messages_per_candidate)
        self.limits = queues.Limits(
            max_message_size=options.max_message_size,
            max_messages=options.max_messages_per_candidate,
            suspend=options.suspend_threshold,
            drop=options.drop_threshold,
            resume=options.resume_threshold,
            pages_per_block=options.pages_per_block,
            overflow=options.overflow,
        )
        self.relay = spec.genesis(paras, options.endowment)
        self.relay.active -= late
        self.chains = {p: queues.Parachain(p) for p in paras}
        self.errors: list[str] = []

    def tick(
        self, before: Mapping[str, Rows], after: Mapping[str, Rows], calls: Sequence[ParachainCall], sent: Any
    ) -> None:
        """One tick of the network: its tables before and after, the registrations that a relay block executes, and what
        is outbound (``OUTBOUND_SCHEMA``, a table)."""
        seen = deepcopy(self.relay)
        fresh = self._fresh(before)
        (was,), (block,) = before["blocks"], after["blocks"]
        if block["number"] > was["number"]:
            paras = [(call.kind is ParachainCallKind.REGISTER, call.para) for call in calls]
            said = spec.step(self.relay, self.config, block["number"], fresh, paras)
            self.errors += [*said.receipts.values(), *said.calls.values()]
        included = {row["para"]: row["head"] for row in before["paras"]}
        for tip, new in zip(before["tips"], after["tips"], strict=True):
            p = tip["chain"]
            if tip["head"] == included[p]:
                chain = self.chains[p]
                chain.pages = {to: pages for to, pages in chain.pages.items() if to in seen.active}
            if new["number"] > tip["number"]:
                self._block(p, new, was["number"], seen, after, sent)
        self._compare(after)

    def _fresh(self, tables: Mapping[str, Rows]) -> list[spec.Receipt]:
        included = {row["para"]: row["head"] for row in tables["paras"]}
        return [
            spec.Receipt(
                row["source"],
                row["relay_parent"],
                row["watermark"],
                tuple((m["to"], m["data"]) for m in tables["sent"] if m["source"] == row["source"]),
                tuple(m["data"] for m in tables["calls"] if m["source"] == row["source"]),
            )
            for row in tables["candidates"]
            if row["head"] != included[row["source"]]
        ]

    def _block(
        self, p: int, tip: dict[str, Any], parent: int, seen: spec.State, after: Mapping[str, Rows], sent: Any
    ) -> None:
        chain = self.chains[p]
        queues.receive(chain, parent, seen.contents, seen.channels, self.limits)
        away = from_table(sent).filter((sent["source"].to_numpy() == p) & (sent["destination"].to_numpy() != p))
        rows = sorted(
            zip(
                away["destination"].tolist(),
                away["index"].tolist(),
                encode_contents(away).to_pylist(),
                strict=True,
            )
        )
        for to, index, message in rows:
            assert index == chain.sent[to]
            queues.send(chain, tip["number"], to, message, self.limits)
        leaving = [pair for pair in seen.channels if seen.leaving.keys() & {*pair}]
        messages = queues.take_outbound(chain, seen.channels, {*seen.closing, *leaving}, self.limits)
        assert messages == [(m["to"], m["data"]) for m in after["sent"] if m["source"] == p]
        assert tip["watermark"] == chain.watermark

    def _compare(self, after: Mapping[str, Rows]) -> None:
        s = self.relay
        channels = [
            {"sender": x, "recipient": y, **vars(c), "closing": s.closing.get((x, y), 0)}
            for (x, y), c in sorted(s.channels.items())
        ]
        requests = [{"sender": x, "recipient": y, **vars(r)} for (x, y), r in sorted(s.requests.items())]
        assert _without(after["channels"]) == channels
        assert _without(after["requests"]) == [{**row, "confirmed": int(row["confirmed"])} for row in requests]
        contents = {(x, y, n, data) for (x, y), messages in s.contents.items() for n, data in messages}
        assert {tuple(_without([row])[0].values()) for row in after["contents"]} == contents
        accounts = [{"para": p, "free": s.free[p], "held": s.held[p]} for p in sorted(s.free)]
        assert _without(after["sovereign"]) == accounts
        paras = [(p, int(p in s.active), s.leaving.get(p, 0), s.watermark[p]) for p in sorted(s.free)]
        names = ("para", "active", "leaving", "watermark")
        assert [tuple(row[name] for name in names) for row in after["paras"]] == paras
        assert {(row["recipient"], row["number"]) for row in after["digests"]} == {
            (p, n) for p, numbers in s.digests.items() for n in numbers
        }
        self._compare_chains(after)

    def _compare_chains(self, after: Mapping[str, Rows]) -> None:
        chains = self.chains.values()
        pages = [(c.para, to, *page) for c in chains for to, held in sorted(c.pages.items()) for page in held]
        names = ("source", "destination", "number", "data")
        assert [tuple(row[name] for name in names) for row in after["pages"]] == pages
        waiting = [(c.para, *page) for c in chains for page in c.waiting]
        assert [tuple(row[n] for n in ("chain", "sent_at", "sender", "data")) for row in after["waiting"]] == waiting
        ends = set()
        for c in chains:
            for x in {*c.heads, *c.suspended, *c.suspended_by, *c.signals}:
                signal = SIGNALS.get(c.signals.get(x, b""), 0)
                row = c.heads.get(x, spec.FIRST_HEAD), int(x in c.suspended), int(x in c.suspended_by), signal
                if row != (spec.FIRST_HEAD, 0, 0, 0):
                    ends.add((c.para, x, *row))
        columns = ("chain", "foreign", "head", "suspended", "suspended_by", "signal")
        assert {tuple(row[name] for name in columns) for row in after["ends"]} == ends


def _without(rows: Rows) -> Rows:
    return [{name: value for name, value in row.items() if name != "chain"} for row in rows]
