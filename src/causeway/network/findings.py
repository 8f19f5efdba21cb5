"""What came of an audit, to be looked at."""

from __future__ import annotations

import html
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from causeway.audit.auditing import CHECK_NAMES, Audit, Check
from causeway.network.rows import Rows


class Findings:
    """What came of an audit: ``checks`` by name, ``holds``, and tables (``violations``, ``completeness``, ``lanes``,
    ``sums``, ``abroad``)."""

    def __init__(self, audit: Audit, checks: Mapping[str, Check]) -> None:
        self._audit, self.checks = audit, dict(checks)

    @property
    def audit(self) -> Audit:
        """Return the whole audit, as ``audit.auditing`` makes it."""
        return self._audit

    @property
    def holds(self) -> bool:
        """Return whether none of the checks is violated."""
        return not any(check.verdict == "violated" for check in self.checks.values())

    @property
    def violations(self) -> Rows:
        """Return what the checks name, violated and unknown."""
        found = self._audit.violations
        if len(self.checks) < len(CHECK_NAMES):
            found = found.filter(pc.is_in(found["check"], pa.array([*self.checks], pa.string())))
        return Rows.of("violations", found)

    @property
    def completeness(self) -> Rows:
        """Return what the input covers of each lane and side."""
        return Rows.of("completeness", self._audit.completeness)

    @property
    def lanes(self) -> Rows:
        """Return the figures of each lane."""
        return Rows.of("lanes", self._audit.lanes)

    @property
    def sums(self) -> Rows:
        """Return what was sent, received, paid out of messages, refunded and is pending, by lane and asset."""
        return Rows.of("sums", self._audit.sums)

    @property
    def abroad(self) -> Rows:
        """Return what left chains for others and came back, by asset."""
        return Rows.of("abroad", self._audit.abroad)

    def _lines(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [("check", "verdict", "examined", "violated", "unknown")]
        for check in self.checks.values():
            figures = (f"{figure:,}" for figure in (check.examined, check.violated, check.unknown))
            rows.append((check.name, check.verdict, *figures))
        return rows

    def __repr__(self) -> str:
        rows = self._lines()
        widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)

    def _repr_html_(self) -> str:
        head, *rows = self._lines()
        cells = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        return f"<table><tr>{cells}</tr>{body}</table>"


__all__ = ["Findings"]
