"""Tables of the page on texts with several values, as data."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "one-text-several-values.md"


def column(heading: str, name: str) -> dict[str, str]:
    """Return a column of the table under a heading: the text of each row, and its cell without backquotes."""
    section = PAGE.read_text().split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    head, _, *rows = [line for line in section.splitlines() if line.startswith("|")]
    place = next(at for at, title in enumerate(_cells(head)) if name in title)
    return {_cells(row)[0].removeprefix("`").removesuffix("`"): _cells(row)[place].replace("`", "") for row in rows}


def _cells(row: str) -> list[str]:
    """Return the cells of a row; spaces within backquotes stay."""
    return re.sub(r"^\| | \|$", "", row).split(" | ")


def texts(heading: str) -> list[str]:
    """Return the texts of a table."""
    return [*column(heading, "text")]
