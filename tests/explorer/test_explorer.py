"""The explorer over HTTP: its pages, refusals and limits, and that it changes no file."""

from __future__ import annotations

import asyncio
import html
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import numpy as np
import pytest
from causeway_proofs.errors import InvalidInput
from starlette.datastructures import QueryParams

import causeway as cw
from causeway.audit.incremental.watch import NAMED_FINDINGS
from causeway.cli.app import build_app
from causeway.cli.shell import OK, execute
from causeway.explorer.addresses import LANE, MESSAGE, PageRequest, chain_address, lane_address, message_address
from causeway.explorer.app import Explorer, TooLong, TooMany, WorkerPool
from causeway.explorer.live import LiveLedger
from causeway.explorer.network_graph import MAX_EDGES, GraphEdge, GraphNode, draw_graph, edge_widths, place_chains
from causeway.ledger.search import MessageKey
from causeway.network.network import LakeNetwork
from causeway.network.opened_lake import open_lake
from causeway.proving.ic.state import get_state_at
from causeway.service.http.guard import HostGuard
from tests.faces.explored import HOSTILE, WAIT, hostile_ledger, network_lake, open_live
from tests.faces.ledgers import both_ends, store_ledger
from tests.support.ic.ic_lake import make_lake

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LANE_OF_LAKE = "/lane?protocol=ibc&source=east&destination=north&lane=1"
MESSAGE_OF_LAKE = "/message?protocol=ibc&source=east&destination=north&lane=1&index=0"
PAGES = [
    *("/", "/network", "/lanes", "/lanes?sort=pending", "/lanes?source=east&destination=north", "/findings"),
    *("/findings?check=order", "/height", "/height?n=2", "/height?n=2&chain=east", "/state", "/state?table=accounts"),
    *("/search", "/chain?name=east", LANE_OF_LAKE, f"{LANE_OF_LAKE}&from=1", MESSAGE_OF_LAKE),
    MESSAGE_OF_LAKE.replace("/message", "/proof") + "&offer=0",
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    return network_lake(tmp_path_factory.mktemp("explored"))


@pytest.fixture(scope="module")
def live(lake: str) -> Iterator[LiveLedger]:
    found = open_live(lake)
    yield found
    found.close()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveLedger]:
    found = open_live(hostile_ledger(tmp_path_factory.mktemp("hostile")))
    yield found
    found.close()


def ask(live: LiveLedger, path: str, method: str = "GET", headers: dict[str, str] | None = None) -> httpx.Response:
    async def asked() -> httpx.Response:
        app = HostGuard(Explorer(live).application(), loopback=True)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8430") as client:
            return await client.request(method, path, headers=headers)

    return asyncio.run(asked())


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_complete_and_loads_only_local_files(live: LiveLedger, path: str) -> None:
    answer = ask(live, path)
    assert answer.status_code == 200, answer.text
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert answer.headers["referrer-policy"] == "no-referrer" and answer.headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in answer.headers
    assert not re.search(r"<style|<script>|\sstyle=|\son[a-z]+=", answer.text)
    loaded = re.findall(r'(?:<script[^>]*src|<link[^>]*href)="([^"]+)"', answer.text)
    assert loaded and all(each.startswith(("/static/", "data:")) for each in loaded)
    assert all(ask(live, each).status_code == 200 for each in loaded if each.startswith("/"))


@pytest.mark.slow
def test_page_links_have_pages(live: LiveLedger) -> None:
    seen: set[str] = set()
    new = {"/"}
    while new and len(seen) < 45:
        kinds = Counter(urlsplit(path).path for path in seen)
        path = min(new, key=lambda each: (kinds[urlsplit(each).path], each))
        seen.add(path)
        answer = ask(live, path)
        assert answer.status_code in (200, 303), path
        found = re.findall(r'href="(/[^"#]*)"', answer.text) if answer.status_code == 200 else []
        new |= {each.replace("&amp;", "&") for each in found if not each.startswith("/static")}
        new -= seen
    assert {urlsplit(path).path for path in seen} >= {"/lane", "/message", "/chain", "/height", "/findings"}


def test_proof_is_verified_and_downloadable(live: LiveLedger) -> None:
    proof = MESSAGE_OF_LAKE.replace("/message", "/proof") + "&offer=0"
    assert "the verifier says true" in ask(live, proof).text
    for part in ("proof", "trust"):
        answer = ask(live, proof.replace("/proof", "/proof.json") + f"&part={part}")
        assert answer.headers["content-disposition"] == f'attachment; filename="{part}-east-north-1-0-0.json"'
        assert answer.json()["kind"]
    assert ask(live, proof.replace("offer=0", "offer=7")).status_code == 404


def test_recorded_ledger_lists_its_unavailable_data(recorded: LiveLedger) -> None:
    assert "recorded ledger" in ask(recorded, "/state").text
    assert ask(recorded, "/height").status_code == 200
    found = recorded.snapshot().figures.lanes.select([*LANE]).to_pylist()[0]
    key = MessageKey(tuple(found[name] for name in LANE), 1, None)
    path = message_address(key)
    assert path is not None and "no state to prove" in ask(recorded, path).text
    assert ask(recorded, path.replace("/message", "/proof") + "&offer=0").status_code == 404


def test_height_is_that_of_the_network_if_every_chain_has_fewer_blocks(tmp_path: Path) -> None:
    halts = [("left", 2), ("middle", 3), ("right", 3)]
    more = "".join(f'[[faults]]\nkind = "halt"\nchain = "{name}"\nfrom = {at}\nuntil = {at}\n' for name, at in halts)
    place = make_lake(tmp_path, more=more)
    state = get_state_at(open_lake(place), "middle", 6)
    assert state.height == 6 and state.number == 5
    live = open_live(place)
    try:
        page = html.unescape(ask(live, "/height?n=6&chain=middle").text)
    finally:
        live.close()
    assert "No events of messages at this height." in page and "1 header of middle" in page
    assert state.root.hex()[:12] in page and ">block<" in page and ">5<" in page


def test_untrusted_names_are_escaped_everywhere(recorded: LiveLedger) -> None:
    lanes = recorded.snapshot().figures.lanes.select([*LANE]).to_pylist()
    paths = [lane_address([row[name] for name in LANE]) for row in lanes]
    pages = ["/", "/network", "/lanes", "/findings", *(path for path in paths if path)]
    assert len(pages) > 6
    for path in pages:
        text = ask(recorded, path).text
        assert "<img" not in text and "<script>" not in text and "\u202e" not in text and "\u0007" not in text
        assert "49" not in re.findall(r"\{\{.*?evil|49evil", text)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_only_get_and_head_are_answered(live: LiveLedger, method: str) -> None:
    assert ask(live, "/", method).status_code == 405
    head = ask(live, "/", "HEAD")
    assert head.status_code == 200 and head.content == b""


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "localhost:8430"}, 200),
        ({"host": "127.0.0.1"}, 200),
        ({"host": "[::1]:8430"}, 200),
        ({"host": "evil.example"}, 421),
        ({"host": "192.168.1.7:8430"}, 421),
        ({"host": "127.0.0.1.evil.example"}, 421),
        ({"origin": "https://evil.example"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}, 403),
        ({"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, 200),
        ({"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}, 200),
        ({"sec-fetch-site": "none", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, 200),
    ],
)
def test_requests_by_another_host_name_or_site_are_refused(
    live: LiveLedger, headers: dict[str, str], status: int
) -> None:
    answer = ask(live, "/live", headers=headers)
    assert answer.status_code == status
    assert status == 200 or "serial" not in answer.text


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/nowhere", 404, "no such page"),
        ("/static/../app.py", 404, ""),
        ("/static/app.py", 404, "no such file"),
        ("/lanes?colour=red", 400, "colour: no such value"),
        ("/lanes?page=1&page=2", 400, "page: given twice"),
        ("/lanes?page=-1", 400, "must be a whole number"),
        ("/lanes?sort=best", 400, "must be one of"),
        ("/lane?lane=nowhere", 404, "no such lane"),
        ("/chain?name=nowhere", 404, "no such chain"),
        ("/message?lane=1", 400, "index, id: missing"),
        ("/message?lane=1&index=99", 404, "no such message"),
        ("/message?lane=1&index=99999999999999999999", 400, "must be a whole number"),
        ("/height?n=x", 400, "must be a whole number"),
        ("/state?table=nothing", 404, "no such table"),
        ("/state?height=99999", 404, "not committed"),
        ("/findings?check=honesty", 400, "must be one of"),
        (f"/search?q={'x' * 401}", 400, "at most 400"),
        (f"/search?q={'x' * 9000}", 400, "8,192"),
        (f"/chain?name={'x' * 5000}", 400, "at most 4,096"),
    ],
)
def test_missing_pages_and_bad_requests_are_reported_in_one_line(
    live: LiveLedger, path: str, status: int, text: str
) -> None:
    answer = ask(live, path)
    assert answer.status_code == status and text in answer.text
    assert "Traceback" not in answer.text and answer.headers["content-security-policy"]


def test_search_opens_a_single_result_or_lists_several(live: LiveLedger) -> None:
    assert ask(live, "/search?q=east/0").status_code in (200, 303)
    chain = ask(live, "/search?q=west")
    assert chain.status_code == 303 or "west" in chain.text
    found = ask(live, "/search?q=echo")
    assert found.status_code == 200 and "/message?" in found.text
    assert "No chain, lane, message or sender is called nobody" in ask(live, "/search?q=nobody").text
    part = ask(live, "/search?q=AS")
    assert {*re.findall(r'href="/chain\?name=(\w+)"', part.text)} == {"east"}, "a part of a name is found, and listed"
    ident = re.search(r"ibc:[0-9]+&gt;[0-9]+/q#0", ask(live, MESSAGE_OF_LAKE).text)
    assert ident is not None
    exact = ask(live, "/search?q=" + ident[0].replace("&gt;", "%3E").replace("#", "%23"))
    assert exact.status_code == 303 and exact.headers["location"].startswith("/message?")


def test_unchanged_pages_are_not_sent_again(live: LiveLedger) -> None:
    for path in ("/live", "/network", "/static/explorer.js"):
        tag = ask(live, path).headers["etag"]
        again = ask(live, path, headers={"if-none-match": tag})
        assert again.status_code == 304 and not again.content


def test_lake_is_never_written(lake: str, live: LiveLedger) -> None:
    def content() -> dict[str, tuple[int, bytes]]:
        files = [path for path in Path(lake).rglob("*") if path.is_file()]
        return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    before = content()
    for path in PAGES:
        ask(live, path)
    assert content() == before and before


# ---- bounds


def test_work_queue_and_waiting_time_are_bounded() -> None:
    release = threading.Event()

    async def crowd() -> list[Any]:
        jobs = WorkerPool("tests", threads=1, waiting=1, seconds=0.3)
        first = [asyncio.create_task(jobs.run(release.wait)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(TooMany):
            await jobs.run(lambda: None)
        ended = await asyncio.gather(*first, return_exceptions=True)
        release.set()
        while True:  # the thread is free again, and the abandoned work was not done
            try:
                return [*ended, await jobs.run(lambda: "done")]
            except TooMany:
                await asyncio.sleep(0.01)

    one, other, last = asyncio.run(crowd())
    assert isinstance(one, TooLong) and isinstance(other, TooLong) and last == "done"


def test_work_errors_are_raised() -> None:
    def fails() -> None:
        raise InvalidInput("so it is")

    with pytest.raises(InvalidInput, match="so it is"):
        asyncio.run(WorkerPool("tests", 1, 1, 5).run(fails))


@pytest.mark.parametrize("name", HOSTILE[:4])
def test_names_survive_a_round_trip_through_addresses(name: str) -> None:
    key = MessageKey(("p", name, None, name), 2**64 - 1, None)
    path = message_address(key)
    assert path is not None and path.isascii()
    asked = PageRequest(QueryParams(urlsplit(path).query), MESSAGE)
    assert asked.message() == key and parse_qs(urlsplit(path).query)["source"] == [name]
    assert message_address(MessageKey((None, "x" * 9_000, None, None), 1, None)) is None


# ---- the graph


@pytest.mark.parametrize("count", [1, 2, 3, 7, 40, 300])
def test_layout_separates_chains_and_is_deterministic(count: int) -> None:
    chains = [f"chain-{number}" for number in range(count)]
    ring = {(chains[number], chains[(number + 1) % count]) for number in range(count)}
    points = place_chains(chains, ring)
    assert points == place_chains(chains, sorted(ring, reverse=True)) and [*points] == chains
    at = np.array([*points.values()])
    assert ((at >= 0) & (at <= 1)).all()
    if count > 1:
        apart = np.sqrt(((at[:, None] - at[None]) ** 2).sum(axis=2)) + 9 * np.eye(count)
        assert apart.min() > 0.004


def test_chain_with_lanes_to_most_others_is_in_the_middle() -> None:
    chains = ["relay", *(f"para-{number}" for number in range(9))]
    points = place_chains(chains, {("relay", chain) for chain in chains[1:]})
    assert points["relay"] == (0.5, 0.5)


def test_edge_width_grows_with_traffic() -> None:
    found = edge_widths({("a", "b"): 1, ("b", "a"): 1_000_000, ("c", "a"): 0}, 1.0, 7.0)
    assert found["c", "a"] == 1.0 < found["a", "b"] < found["b", "a"] == 7.0


def test_dense_network_is_drawn_by_problems_and_largest_traffic(tmp_path: Path) -> None:
    chains = [f"chain-{number:02}" for number in range(30)]
    lanes = [(one, other) for one in chains for other in chains if one != other]
    rows = [row for one, other in lanes for row in both_ends("0", one, other, 0)]
    live = open_live(store_ledger(tmp_path / "dense", rows))
    try:
        text = ask(live, "/network").text
    finally:
        live.close()
    assert text.count('class="edge') == MAX_EDGES < len(lanes)
    assert f"Not drawn: {len(lanes) - MAX_EDGES} edges" in text


def test_labels_on_a_circle_do_not_overlap() -> None:
    nodes = [GraphNode(f"channel-{number:04}", f"/{number}") for number in range(48)]
    hub = GraphNode("hub", "/hub")
    edges = [GraphEdge("hub", node.name, 1, 5, 0, 0, None) for node in nodes]
    drawn = str(draw_graph([hub, *nodes], edges, {}))
    turned = re.findall(r"rotate\((-?[0-9.]+) ", drawn)
    assert len(turned) == len(nodes), "names stand in the direction from the middle, the hub's below it"
    assert all(-90 <= float(angle) <= 90 or 270 <= float(angle) <= 450 for angle in turned), "none stands on its head"


@pytest.mark.slow
def test_replaced_lake_is_shown_as_another_lake(tmp_path: Path) -> None:
    def lake(names: list[str]) -> str:
        net = cw.Network(names, [cw.Deploy("echo", chain=names[0])], protocol="ibc")
        net.call("echo", "echo", "x", sender=f"caller/{names[1]}").result()
        net.export(str(tmp_path / "lake"))
        return str(tmp_path / "lake")

    live = open_live(lake(["one", "two"]), seconds=0.05)
    try:
        assert ask(live, "/state?chain=one").status_code == 200
        shutil.rmtree(tmp_path / "lake")
        lake(["three", "four", "five"])
        until = time.monotonic() + WAIT
        while [ask(live, f"/chain?name={name}").status_code for name in ("five", "one")] != [200, 404]:
            assert time.monotonic() < until
            time.sleep(0.1)
        assert ask(live, "/state?chain=five").status_code == 200 and "five" in ask(live, "/network").text
    finally:
        live.close()


def test_rejected_protocol_message_is_no_rejected_request(tmp_path: Path) -> None:
    few = {"network.executor": "in_process", "traffic.messages": "200"}
    with LakeNetwork.from_scenario(EXAMPLES / "zones.toml", few, lake=str(tmp_path / "lake")) as network:
        network.run()
    with cw.open(str(tmp_path / "lake")) as opened:
        tried = opened.messages.where(kind="control", outcome="rejected").arrow().num_rows
    live = open_live(str(tmp_path / "lake"))
    try:
        page = ask(live, "/").text
        totals = live.snapshot().figures.totals
    finally:
        live.close()
    assert totals["control"] >= tried > 0 == totals["rejected"] and "none failed" in page
    assert re.search(r'Calls answered</dt><dd class="figure">200<', page)


def test_missing_message_links_to_its_position_in_the_lane(tmp_path: Path) -> None:
    rows = [row for index in (0, 3) for row in both_ends("a", "x", "y", index)]
    live = open_live(store_ledger(tmp_path, rows, promises=[{"promise": "numbered", "protocol": "bridge"}]))
    try:
        page = ask(live, "/findings?check=gaps").text
        [path] = {each.replace("&amp;", "&") for each in re.findall(r'Message <a href="([^"]+)"', page)}
        answer = ask(live, path)
    finally:
        live.close()
    assert answer.status_code == 200 and "1: not seen" in answer.text


# ---- violations, and proofs of them


FRAUD = """
[[faults]]
kind = "fraud"
tick = 5
until = 12
chain = "domain-1"
what = "message"
destination = "domain-0"
found = false
"""


@pytest.mark.slow
def test_fraudulent_message_is_two_clicks_away_and_named_on_every_page(tmp_path: Path) -> None:
    text = (EXAMPLES / "faulty_domains.toml").read_text(encoding="utf-8").partition("# ---- what goes wrong")[0] + FRAUD
    (tmp_path / "fraud.toml").write_text(text, encoding="utf-8")
    few = {"network.executor": "in_process", "traffic.messages_per_tick": "4", "traffic.ticks": "6"}
    with LakeNetwork.from_scenario(tmp_path / "fraud.toml", few, lake=str(tmp_path / "lake")) as network:
        network.run(40)
    live = open_live(str(tmp_path / "lake"))
    try:
        first = ask(live, "/").text
        card = first.partition("card violated")[2]
        links = [_plain(each) for each in re.findall(r'href="(/message[^"]+)"', card)]
        wrong = ask(live, links[0]).text
        assert "<em>FAILED</em>" in first and live.snapshot().audit.checks["authenticity"].violated == 1
        assert "in a violation" in wrong
        assert "never sent" in re.sub("<[^>]+>", "", wrong)
        for page in (
            "/height?n=19",
            "/chain?name=domain-0",
            "/lane?protocol=xdm&source=domain-1&destination=domain-0&lane=0",
        ):
            assert 'id="findings"' in ask(live, page).text, page
        assert 'id="findings"' not in ask(live, "/height?n=3").text
    finally:
        live.close()


def test_lane_violations_are_all_counted_beyond_those_named(tmp_path: Path) -> None:
    rows = [row for index in range(NAMED_FINDINGS + 40) for row in both_ends("a", "x", "y", index)]
    again = [row | {"transaction": f"{row['transaction']} again"} for row in rows if row["event"] == "received"]
    live = open_live(store_ledger(tmp_path, rows + again))
    try:
        lanes = ask(live, "/lanes").text
        lane = re.search(r'href="(/lane\?[^"]+)"', lanes)
        assert lane is not None and re.search(f">{NAMED_FINDINGS + 40}</span>", lanes)
        assert f"{NAMED_FINDINGS + 20} more findings" in ask(live, _plain(lane[1])).text
    finally:
        live.close()


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["ic", "xdm", "icmp"])
def test_downloaded_proofs_verify_under_every_protocol(tmp_path: Path, protocol: cw.ProtocolName) -> None:
    options = {"archiving_depth": 3, "challenge_period": 6} if protocol == "xdm" else {}
    net = cw.Network(["a", "b"], [cw.Deploy("echo", chain="a")], protocol=protocol, options=options)
    net.call("echo", "echo", "x", sender="caller/b").result()
    net.export(str(tmp_path / "lake"))
    live = open_live(str(tmp_path / "lake"))
    try:
        lanes = set(re.findall(r'href="(/lane\?[^"]+)"', ask(live, "/lanes").text))
        pages = {each for lane in lanes for each in re.findall(r'href="(/message[^"]+)"', ask(live, _plain(lane)).text)}
        proofs = {each for page in pages for each in re.findall(r'href="(/proof[^"]+)"', ask(live, _plain(page)).text)}
        assert proofs
        for place in sorted(proofs):
            page = ask(live, _plain(place)).text
            assert "the verifier says true" in page, page
            command = re.search(r"<pre[^>]*>causeway (verify [^<]+)</pre>", page)
            assert command is not None
            arguments = command[1].split()
            for part, name in (("proof", arguments[1]), ("trust", arguments[3])):
                answer = ask(live, _plain(place).replace("/proof", "/proof.json") + f"&part={part}")
                assert f'filename="{name}"' in answer.headers["content-disposition"]
                (tmp_path / name).write_bytes(answer.content)
            files = [str(tmp_path / each) if each.endswith(".json") else each for each in arguments]
            assert execute(files, build_app, "causeway") == OK
            damaged = (tmp_path / arguments[1]).read_text().replace("1", "2")
            (tmp_path / arguments[1]).write_text(damaged)
            assert execute(files, build_app, "causeway") != OK
    finally:
        live.close()


def _plain(href: str) -> str:
    return html.unescape(href)


@pytest.mark.parametrize("length", [4_000, 4_096, 4_097])
def test_name_has_a_link_only_if_the_link_is_answered(live: LiveLedger, length: int) -> None:
    path = chain_address("x" * length)
    assert (path is None) == (length > 4_096)
    assert path is None or ask(live, path).status_code == 404


def test_largest_height_has_no_next_link(recorded: LiveLedger) -> None:
    page = ask(recorded, f"/height?n={2**64 - 1}").text
    assert f"n={2**64}" not in page and f"n={2**64 - 2}" in page


def test_folder_without_lake_or_ledger_is_named_as_by_other_commands(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("{}")
    with pytest.raises(InvalidInput, match="a file, and a lake or a ledger is a folder"):
        LiveLedger(str(tmp_path / "file"))
    with pytest.raises(InvalidInput, match="no lake or ledger found"):
        LiveLedger(str(tmp_path / "nothing"))


# ---- unreadable input


def _eventually(live: LiveLedger, path: str, status: int, text: str) -> None:
    until = time.monotonic() + WAIT
    while True:
        answer = ask(live, path)
        if answer.status_code == status and text in html.unescape(answer.text):
            return
        assert time.monotonic() < until, answer.text
        time.sleep(0.05)


def test_removed_lake_is_shown_with_its_last_state_until_it_returns(lake: str, tmp_path: Path) -> None:
    place = tmp_path / "lake"
    shutil.copytree(lake, place)
    live = open_live(str(place), seconds=0.05)
    try:
        shutil.rmtree(place)
        _eventually(live, MESSAGE_OF_LAKE, 200, "no lake or ledger found")
        _eventually(live, "/state", 500, "It cannot be read")
        proof = MESSAGE_OF_LAKE.replace("/message", "/proof") + "&offer=0"
        _eventually(live, proof, 500, "It cannot be read")
        shutil.copytree(lake, place)
        _eventually(live, proof, 200, "the verifier says true")
        assert "neither a lake" not in ask(live, "/").text
    finally:
        live.close()


def test_ledger_that_replaces_a_lake_is_reported(lake: str, tmp_path: Path) -> None:
    place = tmp_path / "lake"
    shutil.copytree(lake, place)
    live = open_live(str(place), seconds=0.05)
    try:
        shutil.rmtree(place)
        shutil.copytree(store_ledger(tmp_path / "other", both_ends("a", "x", "y", 0)), place)
        _eventually(live, "/", 200, "a ledger is there now")
    finally:
        live.close()


def test_incomplete_ledger_shows_the_reason_until_it_is_readable(tmp_path: Path) -> None:
    place = Path(store_ledger(tmp_path, both_ends("a", "x", "y", 0)))
    [file] = place.glob("ledger/**/*.parquet")
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    live = LiveLedger(str(place), seconds=0.05)
    live.start()
    try:
        _eventually(live, "/lanes", 500, "is tried again, and shown once it can be read")
        time.sleep(0.2)  # other threads, without an error, scan again meanwhile
        assert f"{file.name} has {len(content) // 2} bytes where {len(content)} were written" in ask(live, "/").text
        file.write_bytes(content)
        _eventually(live, "/", 200, 'class="hero passed"')
    finally:
        live.close()
