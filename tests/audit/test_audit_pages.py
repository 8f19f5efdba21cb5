"""Pages about the audit: every check and reason is listed, and the example prints its output."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from causeway.audit.engine import CHECK_NAMES, PROMISE_CHECKS

DOCS = Path(__file__).resolve().parents[2] / "docs" / "reference"


def test_each_check_has_a_page_and_the_index_lists_its_lanes() -> None:
    assert {page.stem for page in (DOCS / "audit").glob("*.md")} == {"README", *CHECK_NAMES}
    index = (DOCS / "audit" / "README.md").read_text()
    for check in CHECK_NAMES:
        line = next(line for line in index.splitlines() if line.startswith(f"| [{check}]({check}.md)"))
        assert set(re.findall(r"`(\w+)`", line)) == set(PROMISE_CHECKS.get(check, ()))


def test_example_output_matches_its_page(capsys: pytest.CaptureFixture[str]) -> None:
    page = (DOCS.parent / "how-to" / "audit.md").read_text()
    exec(compile("\n".join(re.findall(r"```python\n(.*?)```", page, re.S)), "audit.md", "exec"), {})
    promised = re.findall(r"```text\n(.*?)```", page, re.S)[0]
    assert capsys.readouterr().out == promised
