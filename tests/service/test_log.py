"""Logs of server and relay processes: one line per event, and few lines under hostile input."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from causeway_proofs.errors import InvalidInput

from causeway.service.journal import MAX_VALUE_CHARACTERS, LineJournal, format_value, parse_level
from causeway.service.node.api import ServingLog, create_application
from tests.service.test_api import Http
from tests.service.test_hostile_servers import Notes
from tests.support.common.lakes import both


def test_event_is_one_line_whatever_its_content(capsys: pytest.CaptureFixture[str]) -> None:
    lines = LineJournal("relay", logging.INFO)
    lines.debug("back-off", seconds=3)
    lines.info("delivered", direction="left>right", messages=6)
    lines.warning("lost", why='a\nb\x1b[2J\ud800 c="d" ' + "x" * 10_000)
    told = capsys.readouterr().err.splitlines()
    assert [line.split()[1:4] for line in told] == [["info", "relay", "delivered"], ["warning", "relay", "lost"]]
    assert told[0].endswith(" direction=left>right messages=6")
    assert "\x1b" not in told[1]
    assert '\\u001b[2J\\ud800 c=\\"d\\"' in told[1]
    assert len(told[1]) < 2 * MAX_VALUE_CHARACTERS


@pytest.mark.parametrize(
    ("value", "text"), [(3, "3"), ("left>right", "left>right"), ("", '""'), ("a b", '"a b"'), (None, "None")]
)
def test_values(value: Any, text: str) -> None:
    assert format_value(value) == text


def test_levels(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_level("auto", terminal=False) == logging.INFO
    assert parse_level("auto", terminal=True) == logging.WARNING
    with pytest.raises(InvalidInput, match="allowed: auto, debug, info, warning, error, none"):
        parse_level("loud", terminal=False)
    LineJournal("serve", parse_level("none", terminal=False)).error("fault")
    assert capsys.readouterr().err == ""


def test_thousand_rejections_are_two_lines() -> None:
    notes = Notes()
    log = ServingLog(notes)
    for number in range(1_000):
        log.refused(400, "InvalidInput" if number % 2 else f"Strange{number}")
    log.stopped(7)
    first, rest = notes.named("refused")
    assert first == {"requests": "400:Strange0*1"}
    assert "400:InvalidInput*500" in rest["requests"]
    assert len(rest["requests"]) < 1_000
    assert notes.named("stopped") == [{"height": 7}]


def test_server_fault_is_logged_with_its_location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with both(tmp_path, calls=0) as lakes:
        notes = Notes()
        http = Http(create_application(lakes.nodes["left"], (), ServingLog(notes)))

        def broken() -> Any:
            raise RuntimeError("nobody thought of this")

        monkeypatch.setattr(lakes.nodes["left"].views, "status", broken)
        assert http.get("/v1/status").status_code == 500
        (fault,) = notes.named("fault")
        assert fault["error"] == "RuntimeError: nobody thought of this"
        assert "test_log.py" in fault["where"].split(" < ")[0]
        assert fault["path"] == "/v1/status"
        assert http.get("/v1/nothing").status_code == 404
        assert notes.named("refused") == [{"requests": "404:NotServed*1"}]
