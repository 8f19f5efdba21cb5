"""Faults of headers and watermarks."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tests.planting.messages import Kind
from tests.planting.traffic import Named, Planted, Span, Traffic, spans
from tests.spec.audit.ledger import Lane, Row, lane_of


def runs(net: Traffic, random: Random) -> Iterator[list[Row]]:
    """The watermarks of one lane, chain and name without planted faults, with heights, in order."""
    found: dict[tuple[object, ...], list[Row]] = {}
    for row in net.watermarks:
        if row["height"] is not None:
            found.setdefault((lane_of(row), row["chain"], row["name"]), []).append(row)
    several = [rows for _, rows in sorted(found.items(), key=repr) if len(rows) > 1]
    random.shuffle(several)
    for rows in several:
        if not any(id(row) in net.used for row in rows):
            yield sorted(rows, key=lambda row: (row["height"], row["position"] or 0, row["value"]))


def fell(net: Traffic, random: Random) -> Planted | None:
    """A watermark is lower than the one before it."""
    for rows in runs(net, random):
        at = random.randrange(1, len(rows))
        one, other = rows[at - 1], rows[at]
        if not one["value"] or one["height"] == other["height"]:
            continue
        if at + 1 < len(rows) and rows[at + 1]["height"] == other["height"]:
            continue
        other["value"] = random.randrange(one["value"])
        net.used |= {id(row): row for row in rows}
        found: set[Named] = {("watermarks", "violated", "fell", lane_of(other), other["value"])}
        return Planted("watermark_fell", frozenset(found), spans(one, other))
    return None


def two_values(net: Traffic, random: Random) -> Planted | None:
    """A watermark has two values at one height."""
    for rows in runs(net, random):
        last = rows[-1]
        last["position"] = last["position"] or 0
        extra = {**last, "value": last["value"] + 1}
        net.watermarks.append(extra)
        net.used |= {id(row): row for row in (*rows, extra)}
        found: set[Named] = {("watermarks", "violated", "two_values", lane_of(last), extra["value"])}
        return Planted("watermark_two_values", frozenset(found), spans(last))
    return None


def anywhere(*rows: Row) -> tuple[Span, ...]:
    """Positions of headers, whose heights may differ from those of events."""
    return tuple((row["chain"], 0, 2**64) for row in rows)


def of_chain(chain: str) -> Lane:
    return None, chain, None, None


def headers(net: Traffic, random: Random, column: str) -> Iterator[tuple[Row, Row]]:
    """Random neighbours among the headers of a chain without planted faults, both with that column."""
    chains: dict[str, dict[int, Row]] = {}
    for row in net.headers:
        if row["height"] is not None:
            chains.setdefault(row["chain"], {})[row["height"]] = row
    pairs = [
        (rows[height - 1], rows[height])
        for rows in chains.values()
        for height in rows
        if height - 1 in rows and not any(id(row) in net.used for row in rows.values())
    ]
    random.shuffle(pairs)
    return ((one, other) for one, other in pairs if one[column] is not None and other[column] is not None)


def header(kind: str) -> Kind:
    """A header has another one beside it, another parent, or an earlier time than the one before."""

    def plant(net: Traffic, random: Random) -> Planted | None:
        column = {"two_headers": "root", "parent_differs": "parent", "time_fell": "time"}[kind]
        for one, other in headers(net, random, column):
            if kind == "two_headers":
                name = "root" if other["hash"] is None else "hash"
                net.headers.append({**other, name: other[name] + "0"})
                net.used[id(net.headers[-1])] = net.headers[-1]
            elif kind == "parent_differs":
                if one["hash"] is None:
                    continue
                other["parent"] += "0"
            else:
                other["time"] = one["time"] - 1
            net.used |= {id(one): one, id(other): other}
            found: set[Named] = {("headers", "violated", kind, of_chain(other["chain"]), other["height"])}
            return Planted(kind, frozenset(found), anywhere(one, other))
        return None

    return plant
