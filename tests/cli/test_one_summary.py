"""Report, explorer and command line agree on the verdict and on every shared count."""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import causeway as cw
from causeway.cli.app import build_app
from causeway.cli.shell import execute
from causeway.explorer.app import Explorer
from causeway.network.network import LakeNetwork
from causeway.report.data import report_data
from causeway.report.sections import report_page
from tests.faces.explored import network_lake, open_live
from tests.faces.ledgers import BEGIN, SECOND, both_ends, store_ledger

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def faulty(folder: Path) -> str:
    """Make a ledger with a forged and a lost message, a gap, quarantined records and a window that ends early."""
    rows = [row for index in range(1, 9) for row in both_ends("a", "x", "y", index)]
    rows += both_ends("a", "x", "y", 12, amount=7) + both_ends("b", "y", "x", 1)[:1]
    rows += [{**rows[0], "index": 2, "event": "dropped", "chain": "y", "lane": "c", "detail": "QueueFull"}]
    rows += [{**rows[0], "index": 2, "lane": "c"}]
    aside = [
        {"source_file": "a.csv", "source_row": row, "reason": reason, "field": "time", "value": "x", "row": "x"}
        for row, reason in enumerate(("not_a_number", "not_a_number", "missing"))
    ]
    windows = [{"chain": "x", "first_time": BEGIN * SECOND, "last_time": (BEGIN + 40) * SECOND}]
    return store_ledger(folder, rows, windows, [{"promise": "numbered"}], aside)


def example(folder: Path) -> str:
    """Run an example with timeouts, rejects and a dishonest relayer."""
    lake = str(folder / "lake")
    settings = {"network.executor": "in_process"}
    with LakeNetwork.from_scenario(EXAMPLES / "tokens.toml", lake=lake, overrides=settings) as network:
        network.run()
    return lake


def pages_of(place: str, *paths: str) -> list[str]:
    """Return pages of the explorer as text."""
    live = open_live(place)

    async def asked() -> list[str]:
        transport = httpx.ASGITransport(Explorer(live).application())
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return [(await client.get(path)).text for path in paths]

    try:
        return asyncio.run(asked())
    finally:
        live.close()


def text_of(page: str, pattern: str) -> list[str]:
    """Return the texts of the elements that match a pattern."""
    return [html.unescape(re.sub("<[^>]+>", "", found)) for found in re.findall(pattern, page, re.S)]


def figures_of(page: str) -> dict[str, tuple[str, ...]]:
    """Return the key figures of a page with their notes, by title."""
    shown = r'<dt>(.*?)</dt><dd class="figure">(.*?)</dd>(?:<dd class="note">(.*?)</dd>)?'
    clean = ([html.unescape(re.sub("<[^>]+>", "", part)) for part in each] for each in re.findall(shown, page))
    return {title: (figure, note) for title, figure, note in clean if title != "Height"}


def states_of(page: str) -> list[str]:
    """Return the state of each check on the first screen of a page, and its cards."""
    strip = text_of(page, r'<nav class="strip".*?</nav>')
    cards = text_of(page, r'<article class="card.*?</article>')
    return [*strip, *cards, *text_of(page, r'<ul class="notices">.*?</ul>')]


@pytest.mark.parametrize("made", [faulty, example, network_lake, lambda folder: store_ledger(folder, [])])
def test_faces_agree_on_verdict_and_counts(
    made: Callable[[Path], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = made(tmp_path)

    def printed(*arguments: str) -> Any:
        execute([*arguments, place, "--json"], build_app, "causeway")
        return json.loads(capsys.readouterr().out)

    with cw.open(place) as opened:
        found, data = opened.audit(), report_data(opened)
        page = report_page(data)
        audit, backlog = printed("audit"), printed("backlog")
        assert found.sentence == data["sentence"] == audit["sentence"]
        assert found.verdict == data["verdict"] == audit["verdict"] and data["holds"] == audit["holds"]
        assert data["quarantined"] == audit["quarantined"] == opened.stored.quarantined()
    shared = ("check", "verdict", "examined", "lanes", "violated", "unknown", "noted", "reasons")
    assert [{name: each[name] for name in shared} for each in data["checks"]] == [
        {name: each[name] for name in shared} for each in audit["checks"]
    ]
    links = ("lane_ident", "message_ident")
    for own, printed_check in zip(data["checks"], audit["checks"], strict=True):
        for which in ("first", "worst"):
            row = own[which] and {name: value for name, value in own[which].items() if name not in links}
            assert row == printed_check[which]
    assert data["totals"] == backlog["totals"]
    explored, listed = pages_of(place, "/", "/findings")
    for each in (page, explored):
        assert text_of(each, "<h1>(.*?)</h1>") == [found.sentence]
    assert figures_of(explored) == figures_of(page) and states_of(explored) == states_of(page)
    verdicts = text_of(listed, r'<td data-label="verdict">(.*?)</td>')
    assert verdicts[: len(found.checks)] == [check.verdict for check in found.checks.values()]


def test_first_screen_names_quarantine_and_incomplete_lanes(tmp_path: Path) -> None:
    with cw.open(faulty(tmp_path)) as opened:
        data = report_data(opened)
    [notices] = text_of(report_page(data), r'<ul class="notices">(.*?)</ul>')
    assert "3 records in quarantine, most (2): not a number." in notices
    lanes = {row["lane"] for row in data["incomplete"]["rows"]}
    assert data["incomplete"]["lanes"] == len(lanes) > 0 and all(f" {lane} (" in notices for lane in lanes)
