"""Figures of random ledgers against their oracle, for any division into parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from causeway.analysis.figures import latency
from causeway.analysis.figures import over_time as flow
from causeway.analysis.figures.figures import LedgerFigures, build_figures
from causeway.analysis.figures.filters import ALL_MESSAGES, MessageFilter
from causeway.analysis.figures.message_rows import MESSAGES_SCHEMA, STEPS, message_table
from causeway.analysis.figures.partial_figures import (
    FigureRequest,
    PartialFigures,
    bucket_figures,
    merge_figures,
    no_figures,
    requested_outcomes,
)
from causeway.analysis.figures.replies import (
    OPEN_SCHEMA,
    REPLIES_SCHEMA,
    CrossLaneReplies,
    find_open_requests,
    find_replies,
    first_replies,
)
from causeway.audit.lane_context import LaneContext
from causeway.ledger import parts
from causeway.ledger.outcomes import OUTCOMES
from causeway.ledger.parts import split_table
from causeway.ledger.row_order import message_buckets, sort_rows
from causeway.ledger.schema import LANE, LEDGER_SCHEMA, OBSERVED_SCHEMA, PROMISES_SCHEMA
from causeway.ledger.windows import LanePromises, ObservedWindowTable
from tests.spec.figures import (
    MEASURES,
    Told,
    axis_of,
    backlog,
    fees,
    key_of,
    name_order,
    over_time,
    quantile,
    step,
    told,
    worst,
)
from tests.spec.figures import delays as delays_of
from tests.support.properties.audit_ledgers import Case, by_chance, journeys_by_chance, table
from tests.tiers import sized

FAR = (*range(8), 2**40, 2**62)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def case_of(seed: int) -> Case:
    """A random ledger whose rows also have ticks and codes."""
    random = Random(seed)
    case = (by_chance if random.random() < 0.5 else journeys_by_chance)(random)
    ticks = random.choice(((None,), (None, *range(5)), FAR))
    for row in case.rows:
        row["tick"], row["code"] = random.choice(ticks), random.choice((None, None, 0, 0, 3))
        if random.random() < 0.3 and row["time"] is not None:
            row["time"] += random.choice((0, 10**6, 10**12, -(10**15)))
    return case


def buckets(case: Case, count: int) -> list[pa.Table]:
    rows = table(case.rows, LEDGER_SCHEMA)
    numbers = message_buckets(rows, count)
    return [sort_rows(rows.filter(pa.array(numbers == bucket))) for bucket in range(count)]


def known(case: Case) -> LaneContext:
    windows = [{**row, "how": "declared", "stated_by": "test"} for row in case.observed]
    promised = [{**row, "stated_by": "test"} for row in case.promises]
    return LaneContext(
        ObservedWindowTable(table(windows, OBSERVED_SCHEMA)), LanePromises(table(promised, PROMISES_SCHEMA))
    )


def replies(case: Case, count: int) -> CrossLaneReplies:
    every = [each for rows in buckets(case, count) for each in requested_outcomes(split_table(rows), known(case))]
    asked = pa.concat_tables(
        [OPEN_SCHEMA.empty_table(), *(find_open_requests(each.columns, each.base, each.unanswered) for each in every)]
    )
    found = [find_replies(each.bucket, asked["id_0"].to_numpy()) for each in every]
    return CrossLaneReplies(first_replies(pa.concat_tables([REPLIES_SCHEMA.empty_table(), *found])))


def messages(case: Case, count: int, where: MessageFilter = ALL_MESSAGES) -> pa.Table:
    found = [
        message_table(each)
        for rows in buckets(case, count)
        for each in requested_outcomes(split_table(rows), known(case), where, replies(case, count))
    ]
    return pa.concat_tables([MESSAGES_SCHEMA.empty_table(), *found])


def figures(case: Case, count: int, asked: FigureRequest) -> LedgerFigures:
    shown: list[PartialFigures] = [no_figures()]
    every = zip(buckets(case, count), case.movements(count), strict=True)
    for rows, moved in reversed([*every]):
        own = bucket_figures(split_table(rows), known(case), asked, moved(), replies(case, count))
        shown = [merge_figures([*shown, own], asked.worst)]
    return build_figures(shown[0], lambda _: messages(case, count))


def plain(rows: pa.Table) -> Iterator[dict[str, Any]]:
    times = [field.name for field in rows.schema if pa.types.is_timestamp(field.type)]
    for name in times:
        rows = rows.set_column(rows.schema.get_field_index(name), name, rows[name].cast(pa.int64()))
    yield from rows.to_pylist()


def names(row: dict[str, Any]) -> tuple[Any, ...]:
    return (*(row[name] for name in LANE), row["index"], None if row["index"] is not None else row["message_id"])


@settings(max_examples=sized(4, 45))
@given(seed=st.integers(0, 2**32), count=st.sampled_from((1, 3)), cut=st.sampled_from((100_000, 1, 3)))
def test_message_outcomes_match_the_oracle(seed: int, count: int, cut: int) -> None:
    case = case_of(seed)
    every = told(case.oracle())
    with patch.object(parts, "PART_ROWS", cut):
        found = {names(row): row for row in plain(messages(case, count))}
    assert found.keys() == {key_of(each) for each in every}
    for each in every:
        row = found[key_of(each)]
        assert [row["kind"], row["outcome"], row["code"], row["detail"]] == [
            *(each.base["kind"], each.outcome, each.code, each.detail)
        ]
        for name in STEPS:
            assert tuple(row[f"{name}_{part}"] for part in ("chain", "height", "tick", "time")) == step(
                getattr(each, name)
            )
        own = delays_of(each)
        for measure, unit in MEASURES:
            number = own.get((measure, unit))
            wanted = number / 1e6 if number is not None and unit == "seconds" else number
            assert row[f"{measure}_{unit}"] == wanted


@settings(max_examples=sized(3, 35))
@given(seed=st.integers(0, 2**32), count=st.sampled_from((1, 3)), cut=st.sampled_from((100_000, 1, 3)))
def test_figures_match_the_oracle(seed: int, count: int, cut: int) -> None:
    case = case_of(seed)
    everything = told(case.oracle())
    every = [each for each in everything if each.is_message]
    with patch.object(parts, "PART_ROWS", cut):
        found = figures(case, count, FigureRequest(by_lane=True, worst=3))
    compare_lanes(found, every, everything)
    compare_latency(found, every)
    compare_backlog(found, every)
    compare_worst(found, every)
    compare_chains(found, every, case)
    assert fees(case.value) == {
        tuple(row[name] for name in (*LANE, "asset", "why", "is_fee")): (
            *(row["movements"], row["unseen"]), int(row["amount"])
        )
        for row in found.fees.to_pylist()
    }  # fmt: skip
    groups = [(each.message.lane[0], each.counted_as, each.outcome, each.code, each.detail) for each in everything]
    came = Counter(group for group, each in zip(groups, everything, strict=True) if each.received is not None)
    assert {group: (many, came[group]) for group, many in Counter(groups).items()} == {
        tuple(row[name] for name in ("protocol", "kind", "outcome", "code", "detail")): (
            row["messages"], row["received"]
        )
        for row in found.codes.to_pylist()
    }  # fmt: skip


def compare_lanes(found: LedgerFigures, every: list[Told], everything: list[Told]) -> None:
    rows = {tuple(row[name] for name in LANE): row for row in plain(found.lanes)}
    apart = {
        "between_chains": [each for each in every if each.is_between_chains],
        "requests": [each for each in every if each.base["kind"] == "request"],
        "from_users": [each for each in everything if each.of_users],
        "refused_from_users": [each for each in everything if each.of_users and each.outcome == "rejected"],
        "control": [each for each in everything if each.base["kind"] == "control"],
        "forged": [
            each for each in everything if each.message.no_program_sent and each.base["kind"] != "control"
        ],
    }  # fmt: skip
    for name, chosen in apart.items():
        of_lanes = Counter(each.message.lane for each in chosen)
        assert {lane: row[name] for lane, row in rows.items() if row[name]} == of_lanes
        assert found.totals[name] == len(chosen)
    lanes = {each.message.lane for each in every}
    assert {lane for lane, row in rows.items() if row["messages"]} == lanes
    for lane in lanes:
        own = [each for each in every if each.message.lane == lane]
        row = rows[lane]
        assert [row[name] for name in ("messages", *OUTCOMES)] == [
            len(own),
            *(sum(each.outcome == outcome for each in own) for outcome in OUTCOMES),
        ]
        assert row["sent"] == sum(each.sent is not None for each in own)
        assert row["in_flight"] == sum(each.is_sent and each.landed is None for each in own)
        numbers = [each.message.index for each in own if each.message.index is not None]
        assert (row["first_index"], row["last_index"]) == (min(numbers, default=None), max(numbers, default=None))
        for name in ("tick", "time"):
            seen = [each.sent[name] for each in own if each.sent and each.sent[name] is not None]
            ends = (row[f"first_sent_{name}"], row[f"last_sent_{name}"])
            assert ends == (min(seen, default=None), max(seen, default=None))
        open_ = [each for each in own if each.outcome == "pending"]
        oldest = min(open_, key=age_order, default=None)
        names_of = ("oldest_pending_index", "oldest_pending_id", "oldest_pending_tick", "oldest_pending_time")
        shown = tuple(row[name] for name in names_of)
        if oldest is None:
            assert shown == (None,) * 4
        else:
            places = [oldest.sent[name] if oldest.sent else None for name in ("tick", "time")]
            assert shown == (oldest.message.index, oldest.base["message_id"], *places)
            for name, unit in (("tick", "ticks"), ("time", "seconds")):
                end, sent = last_of(found, name), shown[names_of.index(f"oldest_pending_{name}")]
                age = None if sent is None or end is None else min(end - sent, 2**63 - 1)
                scaled = age / 1e6 if age is not None and unit == "seconds" else age
                assert row[f"oldest_pending_{unit}"] == scaled
        unit = found.totals["unit"]
        for measure in ("delivery", "round_trip"):
            numbers = [taken[measure, unit] for each in own if (measure, unit) in (taken := delays_of(each))]
            scale = 1e6 if unit == "seconds" else 1
            for name, percent in (("p50", 50), ("p99", 99), ("max", 100)):
                wanted = quantile(numbers, percent) / scale if numbers else None
                assert row[f"{measure}_{name}"] == wanted
    assert found.totals["messages"] == len(every)


def age_order(each: Told) -> tuple[Any, ...]:
    places = [each.sent[name] if each.sent else None for name in ("tick", "time")]
    return (*((place is None, place or 0) for place in places), name_order(key_of(each)))


def last_of(found: LedgerFigures, axis: str) -> int | None:
    """The last tick of the ledger, or the last time in microseconds."""
    end = found.totals[f"last_{axis}"]
    return (end - EPOCH) // timedelta(microseconds=1) if isinstance(end, datetime) else end


def compare_chains(found: LedgerFigures, every: list[Told], case: Case) -> None:
    """Compare chains: events, pending messages from and to them, and their lanes."""
    places = [
        [getattr(each, name)["chain"] for each in every if getattr(each, name)]
        for name in ("sent", "received", "executed", "ended")
    ]
    open_ = [each.message.lane for each in every if each.outcome == "pending"]
    lanes = {tuple(row[name] for name in LANE) for row in case.rows}
    rows = {row["chain"]: row for row in plain(found.chains)}
    ends = {chain for lane in lanes for chain in lane[1:3]} | {row["chain"] for row in case.rows}
    assert rows.keys() == ends - {None}
    for chain, row in rows.items():
        numbers = [row[name] for name in ("sent", "received", "executed", "ended")]
        assert numbers == [at.count(chain) for at in places]
        for side, place in (("out", 1), ("in", 2)):
            assert row[f"pending_{side}"] == sum(lane[place] == chain for lane in open_)
            assert row[f"lanes_{side}"] == sum(lane[place] == chain for lane in lanes)


def compare_latency(found: LedgerFigures, every: list[Told]) -> None:
    rows = {
        (row["scope"], *(row[name] for name in (*LANE, "measure", "unit"))): row for row in found.latency.to_pylist()
    }
    expected: dict[Any, list[int]] = {}
    for each in every:
        for key, number in delays_of(each).items():
            expected.setdefault(("all", None, None, None, None, *key), []).append(number)
            expected.setdefault(("lane", *each.message.lane, *key), []).append(number)
    assert rows.keys() == expected.keys()
    for key, numbers in expected.items():
        scale = 1e6 if key[-1] == "seconds" else 1
        row = rows[key]
        assert row["exact"]
        assert (row["count"], row["negative"]) == (len(numbers), sum(number < 0 for number in numbers))
        shown = [row[name] for name in ("min", "mean", "p50", "p90", "p99", "max")]
        ranked = [quantile(numbers, percent) / scale for percent in (50, 90, 99)]
        mean = sum(numbers) / len(numbers) / scale
        assert shown == [min(numbers) / scale, mean, *ranked, max(numbers) / scale]


def compare_backlog(found: LedgerFigures, every: list[Told]) -> None:
    axis = axis_of(every)
    if axis is None:
        assert found.backlog.num_rows == 0
        return
    rows = list(plain(found.backlog))
    assert {row["axis"] for row in rows} == {axis} and len(rows) <= flow.MAX_BINS
    width = rows[0]["ticks"] if axis == "tick" else round(rows[0]["seconds"] * 1e6)
    expected = backlog(every, axis, width)
    shown = [{**{name: row[name] for name in expected[0] if name != "begin"}, "begin": row[axis]} for row in rows]
    assert shown == expected
    pace = {(row[axis], row["measure"]): row for row in plain(found.latency_over_time)}
    took = over_time(every, axis, width)
    assert pace.keys() == took.keys()
    scale = 1 if axis == "tick" else 1e6
    for key, numbers in took.items():
        assert (pace[key]["count"], pace[key]["max"]) == (len(numbers), max(numbers) / scale)
        for percent in (50, 90, 99):
            number = quantile(numbers, percent) / scale
            assert abs(pace[key][f"p{percent}"] - number) <= abs(number) / 2**8
    unplaced = sum(
        (each.is_sent or each.outcome == "pending") and not (each.sent and each.sent[axis] is not None)
        for each in every
    )
    assert found.totals["unplaced"] == unplaced
    assert rows[-1]["pending"] <= found.totals["pending"] <= rows[-1]["pending"] + unplaced
    for lane in {each.message.lane for each in every}:
        own = [each for each in every if each.message.lane == lane]
        mine = [row for row in plain(found.lane_backlog) if tuple(row[name] for name in LANE) == lane]
        if mine:
            by_begin = {row["begin"]: row for row in backlog(own, axis, width)}
            for row in mine:
                wanted = by_begin[row[axis]]
                assert {name: row[name] for name in wanted if name != "begin"} == {
                    name: wanted[name] for name in wanted if name != "begin"
                }


def compare_worst(found: LedgerFigures, every: list[Told]) -> None:
    unit = found.totals["unit"]
    axis, scale = {"ticks": ("tick", 1), "seconds": ("time", 1e6), None: (None, 1)}[unit]
    for why in ("slowest_delivery", "slowest_round_trip", "oldest_pending"):
        rows = [row for row in plain(found.worst) if row["why"] == why]
        assert [row["rank"] for row in rows] == [*range(1, len(rows) + 1)]
        if why == "oldest_pending":
            expected = worst(every, None, unit)[:3] if unit else []
            assert [(row[f"sent_{axis}"], names(row)) for row in rows] == expected
            end = last_of(found, axis) if axis else None
            ages = [(end - sent) / scale for sent, _ in expected] if end is not None else []
            assert [row["delay"] for row in rows] == ages
        else:
            expected = worst(every, why.removeprefix("slowest_"), unit)[:3] if unit else []
            assert [(row["delay"], names(row)) for row in rows] == [(took / scale, key) for took, key in expected]


@settings(max_examples=4)
@given(seed=st.integers(0, 2**32))
def test_figures_are_independent_of_piece_order(seed: int) -> None:
    case, random = case_of(seed), Random(seed)
    asked = FigureRequest(by_lane=True, worst=2)
    with patch.object(latency, "EXACT_BITS", 3):
        whole = figures(case, 1, asked)
        pieces = [
            bucket_figures(split_table(rows), known(case), asked, moved(), replies(case, 5))
            for rows, moved in zip(buckets(case, 5), case.movements(5), strict=True)
        ]
        random.shuffle(pieces)
        while len(pieces) > 1:
            count = random.randrange(2, len(pieces) + 1)
            pieces = [*pieces[count:], merge_figures(pieces[:count], asked.worst)]
        cut = build_figures(pieces[0], lambda _: messages(case, 5))
    for name in (each.name for each in fields(whole) if each.name != "totals"):
        assert getattr(cut, name).equals(getattr(whole, name)), name
    assert cut.totals == whole.totals


@settings(max_examples=sized(3, 30))
@given(seed=st.integers(0, 2**32))
def test_filtered_figures_equal_the_selected_rows(seed: int) -> None:
    case, random = case_of(seed), Random(seed)
    every = messages(case, 2).to_pylist()
    names = ("source", "destination", "lane", "kind", "outcome", "index", "message_id", "answers")
    for name in random.sample(names, 2):
        if not every:
            continue
        wanted = [random.choice(every)[name], random.choice(every)[name]]
        where = MessageFilter.of(**{name: wanted})
        assert messages(case, 2, where).to_pylist() == [row for row in every if row[name] in wanted], name
