"""The explorer in a real browser: it follows a run, links the graph to proofs, trusts no name."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect

from causeway.cli.app import build_app
from causeway.cli.shell import OK, execute
from tests.faces.explored import WAIT, hostile_ledger, network_lake, serve_explorer
from tests.support.common.small_lakes import user_calls

WIDE, PHONE = (1440, 900), (390, 844)

RUN = """
import sys, time
from causeway.network.network import LakeNetwork
scenario, lake = sys.argv[1:]
with LakeNetwork.from_scenario(scenario, lake=lake) as network:
    for tick in range(1, 40):
        network.run(tick)
        print(network.height, flush=True)
        sys.stdin.readline()
"""

SCENARIO = """
[network]
protocol = "ibc"
executor = "in_process"

[[chains]]
count = 3
prefix = "zone-"

[[programs]]
name = "echo"
chain = "zone-0"
program = "echo"

[[programs]]
name = "caller"
chain = "zone-1"
program = "caller"
balance = 1_000_000

[traffic]
source = "script"
""" + user_calls(range(40), [("caller", "echo", "echo", 3, 1)])


@contextmanager
def open_page(browser: Browser, url: str, size: tuple[int, int] = WIDE, scheme: str = "light") -> Iterator[Page]:
    """Yield a page on which errors and requests to any other host fail the test."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if scheme == "dark" else "light",
        accept_downloads=True,
    )
    complaints: list[str] = []
    try:
        page = context.new_page()
        page.set_default_timeout(WAIT * 1000)

        def said(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                complaints.append(message.text)

        def asked(request: Request) -> None:
            if not request.url.startswith((url, "data:")):
                complaints.append(f"asks {request.url}")

        page.on("console", said)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", asked)
        page.on("dialog", lambda dialog: complaints.append(f"dialog {dialog.message}"))
        page.goto(url + "/")
        yield page
        assert not complaints
    finally:
        context.close()


def eventually(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < until, "it did not come to it"
        time.sleep(0.05)


def test_graph_leads_to_a_proof_that_the_verifier_accepts(browser: Browser, tmp_path: Path) -> None:
    with serve_explorer(network_lake(tmp_path)) as url, open_page(browser, url) as page:
        page.get_by_role("link", name="Network", exact=True).click()
        page.get_by_role("link", name="east to north").focus()
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("Lane 1")
        page.locator(".queue a").first.click()
        expect(page.locator("h1")).to_have_text("Request 0")
        assert page.locator(".rail .hop").count() == 2  # the packet, and its response
        page.get_by_role("link", name="Prove and verify").first.click()
        expect(page.get_by_text("the verifier says true")).to_be_visible()
        files = {}
        for part, label in (("proof", "Download the proof"), ("trust", "Download the trust document")):
            with page.expect_download() as download:
                page.get_by_role("link", name=label).click()
            files[part] = tmp_path / download.value.suggested_filename
            download.value.save_as(files[part])
    assert execute(["verify", str(files["proof"]), "--trust", str(files["trust"])], build_app, "causeway") == OK


def test_page_follows_a_run_of_another_process_and_keeps_open_parts(browser: Browser, tmp_path: Path) -> None:
    scenario, lake = tmp_path / "scenario.toml", tmp_path / "lake"
    scenario.write_text(SCENARIO)
    running = subprocess.Popen(
        [sys.executable, "-c", RUN, str(scenario), str(lake)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert running.stdin is not None and running.stdout is not None
    try:

        def runs_on() -> int:
            assert running.stdin is not None and running.stdout is not None
            running.stdin.write("\n")
            running.stdin.flush()
            return int(running.stdout.readline())

        height = int(running.stdout.readline())
        with serve_explorer(str(lake)) as url, open_page(browser, url) as page:
            page.evaluate("window.never_reloaded = true")
            page.locator("details summary").first.click()
            for _ in range(3):
                height = runs_on()
            expect(page.locator("#live")).to_contain_text(f"height {height}", timeout=WAIT * 1000)
            expect(page.locator("dl.facts")).to_contain_text(f"tick {height - 1}", timeout=WAIT * 1000)
            assert page.evaluate("window.never_reloaded") is True
            assert page.locator("details").first.get_attribute("open") is not None
            running.kill()
            running.wait()
            page.goto(f"{url}/height")
            expect(page.locator("h1")).to_have_text(f"Height {height}")
            assert page.locator("#height tbody tr").count() == 3
    finally:
        running.kill()
        running.wait()


@pytest.mark.slow
@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (PHONE, "dark")])
def test_untrusted_names_are_inert_and_no_page_exceeds_the_screen(
    browser: Browser, tmp_path: Path, size: tuple[int, int], scheme: str
) -> None:
    with serve_explorer(hostile_ledger(tmp_path)) as url, open_page(browser, url, size, scheme) as page:
        expect(page.locator("h1")).to_contain_text("FAILED")
        seen: set[str] = set()
        new = {"/", "/network", "/lanes", "/findings", "/state", "/height"}
        while new and len(seen) < 14:
            kinds = [path.partition("?")[0] for path in seen]
            path = min(new, key=lambda each: (kinds.count(each.partition("?")[0]), each))
            seen.add(path)
            page.goto(url + path)
            expect(page.locator("main section").first).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path
            assert page.evaluate("document.images.length + document.querySelectorAll('main script').length") == 0
            new |= set(page.evaluate("[...document.links].map(a => a.getAttribute('href'))"))
            new = {each for each in new if each.startswith("/") and not each.startswith("/proof.json")} - seen
        assert {path.partition("?")[0] for path in seen} >= {"/lane", "/message", "/chain"}


@pytest.mark.slow
def test_slow_or_silent_client_blocks_only_itself(browser: Browser, tmp_path: Path) -> None:
    with serve_explorer(network_lake(tmp_path)) as url:
        host, port = url.removeprefix("http://").split(":")
        slow = [socket.create_connection((host, int(port))) for _ in range(24)]
        try:
            for number, each in enumerate(slow):
                whole = b"GET /network HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
                each.sendall(whole * 40 if number % 2 else whole[:20])
            with open_page(browser, url) as page:
                page.get_by_role("link", name="Lanes", exact=True).click()
                expect(page.locator("h1")).to_have_text("Lanes")
        finally:
            for each in slow:
                each.close()


@pytest.mark.slow
def test_command_prints_its_address_and_ends_with_one_line(tmp_path: Path) -> None:
    lake = network_lake(tmp_path)
    command = [sys.executable, "-m", "causeway", "explore", lake]
    with subprocess.Popen(
        [*command, "--port", "0", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        said = json.loads(running.stdout.readline())
        port = re.fullmatch(r"http://127\.0\.0\.1:([0-9]+)/", said["url"])
        assert port is not None and said["lake"] == lake
        taken = subprocess.run([*command, "--port", port[1]], capture_output=True, text=True, timeout=WAIT)
        assert (taken.returncode, taken.stdout) == (2, "")
        assert taken.stderr == f"causeway: --port: 127.0.0.1:{port[1]} is in use\n"
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=WAIT)
    assert running.returncode == 0 and errors.splitlines()[-1] == f"causeway: stopped exploring {lake}"
    assert "Traceback" not in errors
