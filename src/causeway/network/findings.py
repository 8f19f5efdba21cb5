"""The findings of an audit, for ``cw.open``."""

from __future__ import annotations

import html
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from causeway.audit.auditing import Audit, Check
from causeway.audit.gathered import CHECK_NAMES, VERDICTS
from causeway.audit.verdict import Verdict, verdict_of
from causeway.network.rows import Rows


class Findings:
    """The findings of an audit: its verdict, the ``checks`` by name, and tables (``violations``, ``completeness``,
    ``lanes``, ``sums``, ``abroad``)."""

    def __init__(self, audit: Audit, checks: Mapping[str, Check]) -> None:
        self._audit, self.checks = audit, dict(checks)

    @property
    def audit(self) -> Audit:
        """Return the whole audit."""
        return self._audit

    @property
    def verdict(self) -> Verdict:
        """Return the verdict of the checks."""
        return verdict_of(self.checks.values())

    @property
    def sentence(self) -> str:
        """Return the verdict as a sentence, as ``causeway audit`` prints it."""
        return self._audit.sentence(*self.checks)

    @property
    def holds(self) -> bool:
        """Return whether none of the checks failed."""
        return self.verdict is not Verdict.FAILED

    @property
    def violations(self) -> Rows:
        """Return what the checks name, violated, unknown and noted."""
        found = self._audit.violations
        if len(self.checks) < len(CHECK_NAMES):
            found = found.filter(pc.is_in(found["check"], pa.array([*self.checks], pa.string())))
        return Rows.of("violations", found)

    @property
    def completeness(self) -> Rows:
        """Return the coverage of each lane and side."""
        return Rows.of("completeness", self._audit.completeness)

    @property
    def lanes(self) -> Rows:
        """Return the figures of each lane."""
        return Rows.of("lanes", self._audit.lanes)

    @property
    def sums(self) -> Rows:
        """Return the value sent, received, paid out, refunded and pending, by lane and asset."""
        return Rows.of("sums", self._audit.sums)

    @property
    def abroad(self) -> Rows:
        """Return the value that left chains for others and came back, by asset."""
        return Rows.of("abroad", self._audit.abroad)

    def _lines(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [("check", "verdict", "examined", *VERDICTS)]
        for check in self.checks.values():
            counts = (f"{getattr(check, name):,}" for name in ("examined", *VERDICTS))
            rows.append((check.name, check.verdict, *counts))
        return rows

    def __repr__(self) -> str:
        rows = self._lines()
        widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        return "\n".join([self.sentence, *lines])

    def _repr_html_(self) -> str:
        head, *rows = self._lines()
        cells = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        return f"<p>{html.escape(self.sentence)}</p><table><tr>{cells}</tr>{body}</table>"


__all__ = ["Findings"]
