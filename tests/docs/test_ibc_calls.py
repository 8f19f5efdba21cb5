"""The reference lists each check of a call of the IBC queue at its step, under the name of its refusal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from causeway.protocols.ibc.calls import cleanup, receipt, receive, send, timeout
from causeway.protocols.ibc.errors import TEXTS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "ibc.md").read_text()


def text_of(section: str) -> str:
    """Return the text of a section, decision or extension."""
    start = re.compile(rf"^### {re.escape(section)} |^- \*\*{section} ", re.MULTILINE).search(PAGE)
    assert start is not None, section
    return re.split(r"^#{2,3} |^- \*\*[XD]-", PAGE[start.end() :], maxsplit=1, flags=re.MULTILINE)[0]


@pytest.mark.parametrize(
    "checks",
    [send.CHECKS, receive.CHECKS, receipt.CHECKS, timeout.CHECKS, timeout.ABSENCE_CHECKS, cleanup.CHECKS],
    ids=["send", "receive", "receipt", "timeout", "absence", "cleanup"],
)
def test_reference_lists_each_check_at_its_step(checks: tuple[Any, ...]) -> None:
    for check in checks:
        section, *steps = check.section.split(", ")
        text = text_of(section)
        if steps:
            rows = [line for line in text.splitlines() if line.lstrip().startswith(f"| {steps[0]} |")]
            text = "\n".join(rows)
            if "as 3.3, step 6" in text:
                text += text_of("3.3")
        assert f"`{check.refusal.name}`" in text, (check.section, check.refusal.name)


def test_reference_has_the_refusal_texts() -> None:
    for refusal, text in TEXTS.items():
        assert f'`{refusal.name}` "{text.replace("{height}", "h")}"' in PAGE, refusal.name
