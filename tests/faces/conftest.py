"""A real browser for the tests of pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start the machine's own Chromium, without a window; skip the test where there is none.

    It goes with the module of tests: as long as Playwright is there, it keeps an event loop running in this thread.
    ``CAUSEWAY_BROWSER`` names another one, or says ``required``: then a missing browser is a failure.
    """
    named = os.environ.get("CAUSEWAY_BROWSER", "")
    found = named if os.path.sep in named else next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        if named:
            pytest.fail(f"no browser on PATH: none of {', '.join(NAMES)} (CAUSEWAY_BROWSER={named})")
        pytest.skip(f"no browser on PATH: none of {', '.join(NAMES)}")
    with sync_playwright() as playwright:
        # Its own sandbox needs a non-root user; the pages are ours.
        yield (started := playwright.chromium.launch(executable_path=found, args=["--no-sandbox"]))
        started.close()
