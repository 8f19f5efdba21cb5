"""Parts of pages: charts, tables, the matrix and texts of findings from plain data."""

from __future__ import annotations

import ast
import base64
import re
from hashlib import sha256
from html import unescape
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from markupsafe import Markup

from causeway.audit.checks.message_checks import BEFORE, ONCE
from causeway.audit.passes.results import CHECK_NAMES
from causeway.core.text import format_number
from causeway.ledger.outcomes import OUTCOMES
from causeway.report.charts import ChartBar, ChartSeries, bar_chart, fit_scale, time_chart
from causeway.report.comparison import compare_page, time_charts
from causeway.report.elements import (
    TableColumn,
    element,
    format_in_unit,
    format_percent,
    format_time,
    group_digits,
    isolated_points,
    render_table,
    safe_name,
    svg_path,
)
from causeway.report.findings import CHECKS, finding_phrase, reason_words
from causeway.report.first_screen import describe_input
from causeway.report.journey import draw_journey, group_steps
from causeway.report.matrix import MAX_CHAINS, OTHERS, PairCells, PairFigures, draw_matrix, fold_matrix, shade_level
from causeway.report.outcomes import BAD, FORGED, OUTCOME_STYLES, outcome_mark, row_outcome, row_outcome_mark
from causeway.report.page import SCRIPT, STYLE, PageSection, render_page

AUDIT = Path(__file__).resolve().parents[2] / "docs" / "reference" / "audit"
SOURCES = Path(__file__).resolve().parents[2] / "src" / "causeway"
EVIL = "<b>&\"'\u202e</b>"


def parsed(piece: str) -> ElementTree.Element:
    """A piece as a tree: it is well formed, and no text became a tag."""
    return ElementTree.fromstring(re.sub(r"<input([^>]*)>", r"<input\1/>", str(piece).replace("</input>", "")))


def texts(tree: ElementTree.Element, tag: str) -> list[str]:
    return ["".join(each.itertext()) for each in tree.iter(tag)]


@pytest.mark.parametrize(
    ("values", "unit", "marks"),
    [
        ([0.0, 7.0], "count", (0, 2, 4, 6, 8)),
        ([0.0, 1.0], "count", (0, 1)),
        ([], "count", (0, 1)),
        ([90.0, 5000.0], "seconds", (0, 1800, 3600, 5400)),
        ([3e9], "bytes", (0, 2**30, 2 * 2**30, 3 * 2**30)),
        ([0.2, 0.9], "share", (0, 0.5, 1.0)),
    ],
)
def test_scales_have_round_ticks(values: list[float], unit: str, marks: tuple[float, ...]) -> None:
    scale = fit_scale(values, unit)
    assert scale.marks == pytest.approx(marks) and scale.top >= max(values, default=0)
    assert scale.share(scale.bottom) == 0 and scale.share(scale.top) == 1


def test_widely_spread_delays_have_a_logarithmic_scale() -> None:
    scale = fit_scale([2.0, 40_000.0], "seconds")
    assert scale.log and scale.bottom <= 2 and scale.top >= 40_000
    shares = [scale.share(mark) for mark in scale.marks]
    assert all(b - a >= 0.13 for a, b in pairwise(shares)) and scale.label(60.0) == "1 min"
    assert not fit_scale([0.0, 40_000.0], "seconds").log  # 0 has no position on it


def test_line_ends_at_missing_values_and_an_isolated_point_is_visible() -> None:
    points = [(0, 1), (1, 2), None, (3, 4), None, None, (5, 6)]
    assert svg_path(points) == "M0 1L1 2M3 4h.01M5 6h.01"
    assert svg_path(isolated_points(points)) == "M3 4h.01M5 6h.01" and not isolated_points(points[:3])
    chart = parsed(time_chart("x", [0, 1, 2, 3], [ChartSeries("y", [4, None, 5])]))
    assert [each.get("class") for each in chart.iter("path")] == ["line tone-a", "line spots tone-a"]


def test_decades_of_a_logarithmic_axis_have_equal_width() -> None:
    edges = [0, 1, 9, 99, 999, 9_999]
    chart = parsed(time_chart("x", edges, [ChartSeries("y", [1, 2, 3, 4, 5])], axis="tick", log=True))
    boxes = [float(each.get("x", "").rstrip("%")) for each in chart.iter("rect")]
    steps = [b - a for a, b in pairwise(boxes[1:])]
    assert boxes[0] == 0 and max(steps[1:]) - min(steps[1:]) < 0.1
    assert [text for text in texts(chart, "text") if text.startswith("tick")] == ["tick 0"]
    assert [text for text in texts(chart, "text") if text.replace(",", "").isdigit()][-3:] == ["10", "100", "1,000"]


def test_overlapping_lines_are_named() -> None:
    line = {
        "title": "x",
        "axis": "tick",
        "unit": "count",
        "at": [0, 1, 2],
        "series": {"a": [1, 2], "b": [1, 2], "c": [0, 1]},
    }
    said = time_charts({"columns": ["a", "b", "c"], "lines": [line]})
    assert "One line: a and b." in said and "c." not in said


def test_charts_escape_their_texts() -> None:
    chart = time_chart(EVIL, [0, 10, 20], [ChartSeries(EVIL, [1, None], "a")], axis=EVIL)
    tree = parsed(chart)
    assert len([*tree.iter("rect")]) == 2 and not [*tree.iter("b")]
    assert "<b>&" in texts(tree, "title")[0] and "\u202e" not in chart
    with pytest.raises(ValueError, match="edges: must be one more than values"):
        time_chart("x", [0, 1], [ChartSeries("y", [1, 2])])
    with pytest.raises(ValueError, match="tone green"):
        time_chart("x", [0, 1], [ChartSeries("y", [1], "green")])
    rows = parsed(bar_chart("Ended", [ChartBar(EVIL, 4, href="#x"), ChartBar("b", 1, hint=EVIL)]))
    assert [each.get("width") for each in rows.iter("rect")] == ["100%", "25%"]


@pytest.mark.parametrize(
    ("at", "series"),
    [
        ([0, 10], []),
        ([5], []),
        ([5], [ChartSeries("y", [])]),
        ([0, 10], [ChartSeries("y", [None])]),
        ([5, 5], [ChartSeries("y", [None])]),
    ],
)
@pytest.mark.parametrize("log", [False, True])
def test_chart_without_values_is_empty(at: list[float], series: list[ChartSeries], log: bool) -> None:
    chart = time_chart("x", at, series, axis="tick", filled=True, log=log)
    assert [each.get("d") for each in parsed(chart).iter("path")] in ([], ["", ""])
    assert "nan" not in chart.lower() and "inf" not in chart.lower()


def test_attributes_are_escaped_also_if_they_are_markup() -> None:
    made = element("a", "x", title=Markup('"><b onclick="x">'))
    assert parsed(made).attrib == {"title": '"><b onclick="x">'} and "<b" not in made


def test_tables_escape_text_omit_empty_columns_and_count_omissions() -> None:
    columns = [
        TableColumn("name", "name"),
        TableColumn("empty"),
        TableColumn("count", "number"),
        TableColumn("more", hint=EVIL),
    ]
    link = element("a", EVIL, href="#lane-1")
    made = render_table(
        columns,
        [[EVIL, None, 1234, link], [None, "", None, Markup("<i>x</i>")]],
        caption=EVIL,
        more=3,
        idents=["lane-1", None],
    )
    tree = parsed(made)
    assert texts(tree, "th")[:3] == ["name", "count", "more"] and "1,234" in texts(tree, "td")
    assert "not seen" not in made and "3 more rows not shown" in made and not [*tree.iter("b")]
    assert "No rows." in render_table(columns, [], caption="x")


def test_matrix_keeps_the_important_chains_and_all_figures() -> None:
    pairs: PairCells = {(f"s{n}", f"d{n}"): PairFigures(1, n, 0, int(n == 0), 0, float(n)) for n in range(40)}
    pairs = {**pairs, (None, "(others)"): PairFigures(2, 1000, 5, 0, 0, None)}
    cells = fold_matrix(pairs)
    assert sum(each.messages for each in cells.values()) == sum(each.messages for each in pairs.values())
    assert sum(each.lanes for each in cells.values()) == 42 and (OTHERS, OTHERS) in cells
    assert ((0, "s0"), (0, "d0")) in cells  # the violated one
    assert len({end for place in cells for end in place}) <= MAX_CHAINS
    assert cells[(1, "not seen"), (0, "(others)")].messages == 1000  # a chain of that name is distinct
    tree = parsed(draw_matrix(cells))
    assert [each.get("value") for each in tree.iter("input")] == ["violated", "open", "latency", "messages"]
    assert (shade_level(0, 10), shade_level(0.001, 10), shade_level(10, 10)) == (0, 1, 7)


def test_names_figures_and_times_are_formatted_for_a_page() -> None:
    assert safe_name("a\u202eb\u200fc\n\x1b[31m") == "a\\u202eb\\u200fc\\n\\x1b[31m"
    assert len(safe_name("n" * 10_000)) == 44
    assert [safe_name(each) for each in ("", " ", " a b ")] == ['""', "\\x20", "\\x20a b\\x20"]
    assert format_number(2.0**256) == "about 1.158 x 10^77" and format_number(2.0**52) == f"{2**52:,}"
    assert group_digits("-12000000000000000000") == Markup(
        '<span class="figure" title="-12,000,000,000,000,000,000">-1.2000 \u00d7 10<sup>19</sup></span>'
    )
    assert (format_percent(0.9999), format_percent(1e-9), format_percent(0.5)) == ("> 99.9 %", "< 0.1 %", "50 %")
    assert (format_in_unit(None, "seconds"), format_in_unit(13.1134, "seconds"), format_in_unit(1, "ticks")) == (
        "\u2013",
        "13.1 s",
        "1 tick",
    )
    assert (format_time(10.0), format_time(1e30)[:4], format_time(-1e30)[:4]) == ("t + 10 s", "9999", "0001")
    assert format_in_unit(-7200.0, "seconds") == "-2.0 h"
    assert format_time("2022-08-01T21:42:36+00:00") == "2022-08-01 21:42:36 UTC"


def reasons_in_sources() -> set[tuple[str | None, str]]:
    """Collect the reasons that the checks can give: (check, reason), None for a reason of several checks."""
    found: set[tuple[str | None, str]] = set()
    for file in (SOURCES / "audit").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name("Finding"), args=[check, _, ast.Constant(str(reason)), *_]):
                    found.add((str(check.value) if isinstance(check, ast.Constant) else None, reason))
                case ast.Tuple([ast.Name("VIOLATED" | "UNKNOWN" | "NOTED"), ast.Constant(str(reason))]):
                    found.add((None, reason))
    return found


def reasons_in_pages() -> set[tuple[str | None, str]]:
    """Collect the reasons that the pages of the checks document."""
    rows = re.compile(r"^\| (?:violated|unknown|noted) \| (.+?) \|", re.M)
    pages = ((file.stem, rows.findall(file.read_text(encoding="utf-8"))) for file in AUDIT.glob("*.md"))
    return {(check, each) for check, found in pages for row in found for each in re.findall(r"`(\w+)`", row)}


def test_every_reason_of_every_check_has_a_text() -> None:
    assert set(CHECKS) >= {*CHECK_NAMES} | {each.stem for each in AUDIT.glob("*.md")} - {"README"}
    pairs = {(before.value, after.value) for before, after in BEFORE}
    found = reasons_in_sources() | reasons_in_pages()
    found |= {("exactly_once", f"{event.value}_again") for event in ONCE}
    found |= {("causality", f"{after}_before_{before}") for before, after in pairs}
    assert len(found) > 80
    for check, reason in found:
        common = {"reason": reason, "unit": "messages"}
        rows = [{**common, "check": each} for each in (CHECKS if check is None else [check])]
        said = {finding_phrase({**row, "magnitude": size}) for row in rows for size in (3.0, None)}
        assert [each for each in said if "is named for" not in each], reason
        assert check is None or not [each for each in said if "is named for" in each or "{" in each or "  " in each]
        assert "_" not in reason_words(reason)
    one = {"check": "gaps", "reason": "skipped", "magnitude": 1.0, "unit": "messages"}
    assert finding_phrase(one) == "begins a run of 1 message that was skipped, though a later one was received"
    assert (
        finding_phrase({"check": "x", "reason": "new_one", "magnitude": None, "unit": None}) == "is named for new one"
    )


def test_cause_of_a_loss_is_named() -> None:
    row = {"check": "delivery", "reason": "dropped", "magnitude": None, "unit": None, "detail": "Queue\u202eFull"}
    assert finding_phrase(row) == "was dropped (Queue\\u202eFull)"
    assert finding_phrase({**row, "detail": None}) == "was dropped" and "(" not in finding_phrase(
        {**row, "reason": "pending"}
    )


def test_outcomes_differ_without_colours_and_bad_ones_are_never_neutral() -> None:
    assert [*OUTCOME_STYLES] == sorted(OUTCOME_STYLES, key=[*OUTCOME_STYLES].index) and {*OUTCOME_STYLES} == {
        *OUTCOMES,
        FORGED,
    }
    assert all(OUTCOME_STYLES[each].form == "broken" and OUTCOME_STYLES[each].tone.startswith("bad") for each in BAD)
    forms = {each: look.form for each, look in OUTCOME_STYLES.items()}
    assert forms["rejected"] == forms["timed_out"] == "over" and OUTCOME_STYLES["rejected"].tone not in (
        "good",
        "f",
        "c",
    )
    assert 'class="outcome bad"' in outcome_mark("dropped") and 'class="outcome bad"' not in outcome_mark("rejected")
    assert 'class="outcome bad"' in outcome_mark("answered", verdict="violated")
    step = {"event": "sent", "detail": None}
    life = {"source": "a", "destination": "b", "lane": "0", "kind": "request", "events": [step]}
    said = {
        "answered": "answered",
        "executed": "delivered",
        "dropped after it was received": "dropped",
        "timed out": "timed_out",
        "contradicted: its two chains report different ends": "contradicted",
        "received; never sent in this input": "delivered",
        "reverted: all its events were reverted": "unknown",
    }
    assert {each: row_outcome({**life, "outcome": each}) for each in said} == said
    assert "never sent" in row_outcome_mark({**life, "outcome": "received; never sent in this input"})
    assert row_outcome({**life, "kind": "response", "outcome": "answered"}) == "delivered"
    forged = {**life, "outcome": "rejected", "events": [{**step, "detail": FORGED}]}
    assert row_outcome(forged) == FORGED and "forged, rejected" in row_outcome_mark(forged)


@pytest.mark.parametrize(("ticks", "words"), [((3, 5), "+2 ticks"), ((None, 5), "+12 s")])
def test_steps_are_timed_in_ticks_if_all_have_one(ticks: tuple[int | None, ...], words: str) -> None:
    names = ("chain", "height", "time", "transaction", "code", "detail", "lane", "sender", "receiver", "amount")
    step: dict[str, Any] = {**dict.fromkeys(names), "roots": [], "notes": []}
    steps = [
        {**step, "event": event, "tick": tick, "seconds": seconds}
        for event, tick, seconds in zip(("sent", "received"), ticks, (0.0, 12.0), strict=True)
    ]
    ends = {"source": "a", "destination": "b", "index": 1, "message_id": None, "answers": None, "journey": None}
    made = draw_journey({**step, **ends, "events": steps, "outcome": "received", "open": False, "kind": "request"})
    assert words in made and ">request</span>" in made


def test_steps_at_one_position_are_grouped_and_those_with_notes_stay_alone() -> None:
    place = dict.fromkeys(("chain", "height", "tick", "time", "transaction", "code", "detail"))
    steps = [{**place, "event": each, "notes": ["again"] if each == "c" else []} for each in "abcd"]
    steps.append({**place, "event": "e", "notes": [], "height": 7})
    assert [[each["event"] for each in group] for group in group_steps(steps)] == [["a", "b"], ["c"], ["d"], ["e"]]


def test_page_is_complete_and_restricts_scripts_by_digest() -> None:
    made = render_page(
        f"x {EVIL}", [PageSection("one", EVIL, Markup("<p>body</p>"), EVIL)], verdict="PASSED", foot=[EVIL]
    )
    assert EVIL not in made and "<p>body</p>" in made and made.count("<script>") == 1
    assert (
        STYLE in made and SCRIPT in made and "unsafe" not in made and "://" not in made.replace("http://www.w3.org", "")
    )
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="(.*?)">', made)
    allowed = dict(each.split(" ", 1) for each in unescape(policy).split("; "))
    for tag in ("style", "script"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", made, re.S)
        digest = base64.b64encode(sha256(content.encode()).digest()).decode()
        assert allowed.pop(f"{tag}-src") == f"'sha256-{digest}'"
    assert allowed.pop("img-src") == "data:" and {*allowed} == {"default-src", "base-uri", "form-action"}
    assert {*allowed.values()} == {"'none'"}
    assert (files("causeway.report") / "templates" / "theme.css").is_file()


def test_an_input_whose_last_time_is_beyond_the_calendar_has_no_dates() -> None:
    data = {
        "lake": "x", "kind": "ledger", "run": None, "input": {"protocols": [], "chains": 2},
        "totals": {"lanes": 1, "unit": "seconds", "first_time": "2022-08-01T21:42:36+00:00", "last_time": None},
    }  # fmt: skip
    assert "2022" not in str(describe_input(data)) and "1 lane" in str(describe_input(data))


def test_protocols_are_shown_side_by_side() -> None:
    made = compare_page(
        {
            "title": EVIL,
            "note": EVIL,
            "columns": ["one", "two"],
            "rows": [
                {"what": EVIL, "unit": "ticks", "values": [2, 4], "better": "less", "group": "Latency"},
                {"what": "how", "unit": "text", "values": [EVIL, None], "better": None, "group": "Latency"},
            ],
            "charts": [{"title": "Hashes", "unit": "count", "values": {"one": 1, "two": None}}],
            "lines": [
                {"title": "B", "axis": "tick", "unit": "count", "at": [0, 1], "series": {"one": [1], "two": [0]}}
            ],
            "guarantees": {
                EVIL: {
                    "columns": ["", "holds", "verdict"],
                    "rows": [
                        [EVIL, {"holds": "no", "text": EVIL}, {"verdict": "PASSED"}],
                        ["order", {"holds": "yes", "text": "so"}, {"verdict": None}],
                    ],
                }
            },
            "faults": {"columns": ["fault", "one"], "rows": [[EVIL, "waits"]]},
        }
    )
    assert "<strong>2 ticks</strong>" in made and EVIL not in made and "<b>&" not in made
    assert made.count("<section") == 5


@pytest.mark.parametrize(
    ("row", "error"),
    [(["order", {"holds": "maybe"}], KeyError), (["order"], ValueError), (["order", "yes", "no"], ValueError)],
)
def test_table_of_guarantees_rejects_unknown_words_and_other_lengths(row: list[Any], error: type[Exception]) -> None:
    table = {"columns": ["", "holds"], "rows": [row]}
    with pytest.raises(error):
        compare_page({"title": "x", "columns": [], "rows": [], "guarantees": {"xdm": table}})


def test_order_by_block_alone_has_no_elapsed_time() -> None:
    row = {
        "check": "causality",
        "reason": "executed_before_received",
        "magnitude": 0.0,
        "unit": "microseconds",
        "size": None,
    }
    assert finding_phrase(row) == "was executed before it was received"
    assert finding_phrase({**row, "magnitude": 2e6}) == "was executed 2 s before it was received"
