"""``causeway report`` in a browser: wide and on a phone, light and dark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

import causeway as cw
from causeway.cli.app import build_app
from causeway.cli.shell import BAD_INPUT, FAILED, OK, execute
from causeway.network.network import LakeNetwork
from causeway.report.data import report_data
from causeway.report.sections import report_page
from tests.faces.ledgers import BEGIN, SECOND, both_ends, store_ledger

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

INJECTED = "<img src=x onerror=window.taken=1></script><script>window.taken=1</script>"
TURNED = "safe\u202egnihtemos\u2066\u200f"
LONG = "n" * 400

SIZES = {"wide": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}
SCHEMES = ("light", "dark")

CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].map((part) => part / 255);
  };
  const over = (top, below) => [0, 1, 2].map((part) => top[part] * top[3] + below[part] * (1 - top[3])).concat(1);
  const behind = (element) => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) {
      const layer = rgba(getComputedStyle(each).backgroundColor);
      layers.push(layer);
      if (layer[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [1, 1, 1, 1]);
  };
  const light = (colour) => {
    const linear = colour.slice(0, 3).map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const bad = [];
  for (const element of document.body.querySelectorAll("*")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility() || element.closest(".quiet, script, style, svg")) continue;
    const style = getComputedStyle(element), below = behind(element);
    const one = light(over(rgba(style.color), below)), other = light(below);
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) bad.push([element.textContent.trim().slice(0, 40), ratio.toFixed(2)]);
  }
  return bad;
}"""


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A ledger with a forged message, gaps and quarantined records; names of chains, lanes and assets are hostile."""
    lane = f"{INJECTED}{LONG}"
    rows = [row for index in range(1, 9) for row in both_ends(lane, INJECTED, TURNED, index, TURNED)]
    rows += both_ends(lane, INJECTED, TURNED, 12, LONG, amount=7)
    rows += both_ends(" ", "", " ", 0)
    rows += [{**row, "index": 2**64 - 2, "height": 2**64 - 1, "time": None} for row in both_ends(" ", "", " ", 1)]
    rows += [row for index in range(4) for row in both_ends("b->c", "b", "c", index)][:-1]
    aside = {
        "source_file": "a.csv",
        "source_row": 1,
        "reason": "not_a_number",
        "field": INJECTED,
        "value": "x",
        "row": "x",
    }
    promises = [{"promise": "numbered"}, {"promise": INJECTED}]
    windows = [{"chain": INJECTED, "first_time": BEGIN * SECOND, "last_time": (BEGIN + 1_000) * SECOND}]
    return store_ledger(tmp_path_factory.mktemp("broken"), rows, windows, promises, [aside])


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The lake of an example."""
    lake = str(tmp_path_factory.mktemp("healthy") / "lake")
    settings = {"network.executor": "in_process"}
    with LakeNetwork.from_scenario(EXAMPLES / "tokens.toml", lake=lake, overrides=settings) as network:
        network.run()
    return lake


def render_report(place: str) -> str:
    with cw.open(place) as opened:
        return report_page(report_data(opened))


@pytest.fixture(scope="module")
def pages(broken: str, healthy: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    found = {"broken": folder / "broken.html", "healthy": folder / "healthy.html"}
    found["broken"].write_text(render_report(broken))
    found["healthy"].write_text(render_report(healthy))
    return found


@contextmanager
def open_report(browser: Browser, file: Path, size: str = "wide") -> Iterator[tuple[Page, list[str]]]:
    """A page in a browser, with its requests and errors."""
    context = browser.new_context(viewport=SIZES[size])  # type: ignore[arg-type]
    page = context.new_page()
    heard: list[str] = []
    page.on("console", lambda message: heard.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: heard.append(f"error: {error}"))
    page.on("request", lambda request: heard.append(f"request: {request.url}"))
    page.goto(file.as_uri())
    heard.remove(f"request: {file.as_uri()}")
    yield page, heard
    context.close()


@pytest.mark.parametrize("name", ["broken", "healthy"])
def test_report_loads_no_other_file_fits_the_screen_and_is_readable(
    name: str, browser: Browser, pages: dict[str, Path]
) -> None:
    with open_report(browser, pages[name]) as (page, heard):
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        for size in SIZES.values():
            page.set_viewport_size(size)  # type: ignore[arg-type]
            assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
            for scheme in SCHEMES:
                page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
                assert page.evaluate(CONTRAST) == [], (size, scheme)
        page.emulate_media(media="print")
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES["phone"]["width"]
        assert page.evaluate("window.taken") is None
        assert [each for each in heard if not each.startswith("request: data:image/svg+xml")] == []


@pytest.mark.parametrize("size", SIZES)
def test_first_screen_names_the_violations_with_the_worst_example(
    size: str, browser: Browser, pages: dict[str, Path], broken: str
) -> None:
    with open_report(browser, pages["broken"], size) as (page, _):
        with cw.open(broken) as opened:
            assert page.locator("h1").inner_text() == opened.audit().sentence
        notices = page.locator(".notices").inner_text()
        assert "1 record in quarantine: not a number." in notices and "incomplete: " in notices
        example = page.locator(".card.violated", has_text="Authenticity").locator(".examples li").first
        assert "Message 12 from" in example.inner_text() and "another content than was sent" in example.inner_text()
        cut = "[...document.querySelectorAll('.fact .figure')].filter((each) => each.scrollWidth > each.clientWidth)"
        assert page.evaluate(f"{cut}.map((each) => each.innerText)") == []
        examples = page.locator("#checks .failed .examples li")
        assert [text for text in examples.all_inner_texts() if "\n" in text] == [] and examples.count() >= 1
        box = page.locator(".card.violated").first.bounding_box()
        assert box is not None and box["y"] < SIZES[size]["height"] * 0.8
        if size == "wide":
            assert page.locator(".card.unknown").first.bounding_box()["y"] < SIZES[size]["height"]  # type: ignore[index]


def test_passing_lake_is_reported_as_passed(browser: Browser, pages: dict[str, Path]) -> None:
    with open_report(browser, pages["healthy"]) as (page, _):
        assert page.locator("h1").inner_text() == "PASSED"
        assert page.locator("#verdict .card").count() == 0 and page.locator("#verdict .strip .failed").count() == 0
        assert "Relayer relayer: 32 of 32 messages took effect" in page.locator("#run").inner_text()
        assert page.locator("#time .chart").count() >= 2
        assert '""' not in page.locator("main").inner_text()


def test_untrusted_names_stay_text(browser: Browser, pages: dict[str, Path]) -> None:
    with open_report(browser, pages["broken"]) as (page, _):
        assert page.evaluate("document.querySelectorAll('img, iframe, object').length") == 0
        assert page.evaluate("document.scripts.length") == 1
        text = page.evaluate("document.documentElement.outerHTML")
        assert not [character for character in text if character in "\u202e\u2066\u200f\u202d\u2067"]
        assert "<img src=x" in page.locator("#lanes").inner_text()


@pytest.mark.parametrize("name", ["broken", "healthy"])
def test_every_link_has_a_target_and_no_id_is_duplicated(name: str, browser: Browser, pages: dict[str, Path]) -> None:
    with open_report(browser, pages[name]) as (page, _):
        links = page.evaluate("[...document.querySelectorAll('a')].map((each) => each.getAttribute('href'))")
        idents = page.evaluate("[...document.querySelectorAll('[id]')].map((each) => each.id)")
        assert len(idents) == len(set(idents))
        assert {each for each in links if not each.startswith("#") or each[1:] not in idents} == set()
        assert len(links) > 10


def test_only_the_script_of_the_report_runs(browser: Browser, pages: dict[str, Path], tmp_path: Path) -> None:
    altered = tmp_path / "altered.html"
    added = "<script>window.taken = 1</script><p style='color: red' onclick='window.taken = 1'>more</p>"
    altered.write_text(pages["healthy"].read_text().replace("<footer>", f"{added}<footer>"))
    with open_report(browser, altered) as (page, _):
        page.get_by_text("more", exact=True).click()
        assert page.evaluate("window.taken") is None
        assert page.get_by_text("more", exact=True).evaluate("each => getComputedStyle(each).color") != "rgb(255, 0, 0)"


def test_charts_are_operable_by_keys_and_colours_selectable(browser: Browser, pages: dict[str, Path]) -> None:
    with open_report(browser, pages["healthy"]) as (page, _):
        page.locator("#time .plot").first.focus()
        for _ in range(3):
            page.keyboard.press("ArrowRight")
        assert "tick 3" in page.locator(".tip").inner_text() and "pending: " in page.locator(".tip").inner_text()
        page.keyboard.press("Escape")
        assert page.locator(".tip").is_hidden()
        before = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.get_by_role("button", name="Use dark colours").click()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
        assert page.get_by_role("button", name="Use light colours").is_visible()
        page.locator("label", has_text="Messages").click()
        assert page.locator(".panel.of-messages").is_visible() and page.locator(".panel:visible").count() == 1


def test_report_of_a_thousand_lanes_is_bounded(tmp_path: Path) -> None:
    rows = [row for lane in range(1_000) for row in both_ends(f"l{lane}", f"s{lane % 200}", f"d{lane % 150}", 1)]
    with cw.open(store_ledger(tmp_path, rows)) as opened:
        data = report_data(opened)
    page = report_page(data)
    assert data["lanes"]["total"] == 1_000 and len(page) < 900_000
    assert data["lanes"]["others"]["lanes"] + len(data["lanes"]["rows"]) == 1_000
    assert sum(cell["messages"] for cell in data["lanes"]["matrix"]) == 1_000
    assert "more lanes not listed" in page


@pytest.mark.parametrize("rows", ["none", "far", "bare"])
def test_nearly_empty_ledgers_have_a_report(rows: str, tmp_path: Path) -> None:
    one, other = both_ends("l", "a", "b", 1)
    most = {"index": 2**64 - 1, "height": 2**64 - 1, "amount": 2**256 - 1, "code": -(2**63)}
    far = [{**one, **most, "time": 253_402_300_799_999_999}, {**other, **most, "time": -62_135_596_800_000_000}]
    bare = [
        {"protocol": "p", "kind": "request", "event": "sent"},
        {**one, "time": None, "index": None, "message_id": "m"},
    ]
    page = render_report(store_ledger(tmp_path, {"none": [], "far": far, "bare": bare}[rows]))
    words = {
        "none": "NOT APPLICABLE: nothing was examined",
        "far": "FAILED",
        "bare": "INCONCLUSIVE",
    }
    assert f"<h1><em>{words[rows]}" in page.replace("</em><span>", "")
    assert ("<title>ledger: NOT APPLICABLE</title>" in page) is (rows == "none")


def test_comparison_is_a_section_of_a_report(tmp_path: Path) -> None:
    row = {"what": "headers", "unit": "count", "values": [3], "better": None, "group": "Work"}
    with cw.open(store_ledger(tmp_path, [])) as opened:
        data = report_data(opened, compare={"title": "t", "note": INJECTED, "columns": [TURNED], "rows": [row]})
    page = report_page(data)
    assert 'id="compare"' in page and "headers" in page and INJECTED not in page and "\u202e" not in page


def test_command_writes_identical_bytes_and_exits_like_an_audit(
    broken: str,
    healthy: str,
    pages: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(arguments: list[str]) -> int:
        return execute(arguments, build_app, "causeway")

    monkeypatch.chdir(tmp_path)
    assert run(["report", broken]) == FAILED
    assert capsys.readouterr().out.startswith("ledger.html: FAILED")
    assert Path("ledger.html").read_bytes() == pages["broken"].read_bytes()
    assert run(["report", healthy, "--out", "ledger.html"]) == OK
    assert Path("ledger.html").read_bytes() == pages["healthy"].read_bytes()
    Path("mine.html").write_text("<p>mine</p>")
    assert run(["report", healthy, "--out", "mine.html"]) == BAD_INPUT
    assert "mine.html: is there and no report" in capsys.readouterr().err
    assert run(["report", healthy, "--out", f"{healthy}/page.html"]) == BAD_INPUT
    assert "is inside the lake" in capsys.readouterr().err
    assert run(["report", healthy, "--compare", "mine.html"]) == BAD_INPUT
    assert "mine.html: is not what causeway compare --json prints" in capsys.readouterr().err
    assert run(["report", str(tmp_path / "nothing")]) == BAD_INPUT
    capsys.readouterr()
    hostile = Path("two\nlines\u202e\x1b[2J")
    hostile.symlink_to(healthy, target_is_directory=True)
    assert run(["report", str(hostile)]) == OK
    assert capsys.readouterr().out.startswith("two\\nlines\\u202e\\x1b[2J.html: PASSED")
    assert run(["report", healthy, "--json"]) == OK
    said = json.loads(capsys.readouterr().out)
    assert (said["verdict"], said["sentence"], said["holds"]) == ("PASSED", "PASSED", True)
    assert said["calls"]["answered"] == 11 and all("noted" in check for check in said["checks"])
