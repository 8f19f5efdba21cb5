"""Findings of one lane, chain or height as a part of its page, violations first."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from causeway.audit.findings import VIOLATED
from causeway.audit.gathered import VERDICTS
from causeway.explorer.addresses import LINKS
from causeway.explorer.frame import Part
from causeway.explorer.view import View
from causeway.ledger.typed import plain_rows, value_type
from causeway.report.findings import finding
from causeway.report.svg import element
from causeway.report.tables import badge
from causeway.report.text import many
from causeway.report.wording import title_of

LISTED = 20
"""Findings of a page that is about something else."""


def of_chain(view: View, chain: str) -> Part | None:
    """Return the violations on a chain, and on lanes from it or to it; None: there are none."""
    rows = _violated(view)
    wanted = [_equal(rows, name, chain) for name in ("chain", "source", "destination")]
    return listed(rows.filter(pc.or_(pc.or_(*wanted[:2]), wanted[2])), named=True)


def of_height(view: View, height: int, chain: str | None) -> Part | None:
    """Return the violations at a height, on all chains or one; None: there are none."""
    rows = _violated(view)
    rows = rows.filter(_equal(rows, "height", height))
    return listed(rows if chain is None else rows.filter(_equal(rows, "chain", chain)), named=True)


def listed(rows: pa.Table, *, named: bool, total: int = 0) -> Part | None:
    """Return findings as a part of a page; None where there are none. ``named``: whether each names its lane;
    ``total``: their number, where more were counted than are listed."""
    if not rows.num_rows:
        return None
    items = []
    for row in plain_rows(worst_first(rows).slice(0, LISTED)):
        check = element("a", {"href": LINKS.check(row["check"])}, title_of(row["check"]))
        said = finding(row, LINKS, named=named)
        items.append(element("li", {}, [badge(row["verdict"]), Markup(" "), check, Markup(": "), said]))
    if (more := max(total, rows.num_rows) - len(items)) > 0:
        items.append(element("li", {}, f"{many(more, 'more finding')}"))
    return Part("findings", "Findings", element("ul", {"class": "remarks"}, items))


def worst_first(rows: pa.Table) -> pa.Table:
    """Return findings by verdict, violations first; those of one verdict in their order."""
    ranks = pc.index_in(rows["verdict"], pa.array(VERDICTS))
    return rows.append_column("rank", ranks).sort_by("rank").drop_columns("rank")


def _violated(view: View) -> pa.Table:
    rows = view.audit.violations
    return rows.filter(pc.equal(rows["verdict"], VIOLATED))


def _equal(rows: pa.Table, name: str, value: object) -> pa.ChunkedArray:
    kind = value_type(rows.schema.field(name).type)
    return pc.fill_null(pc.equal(rows[name].cast(kind), pa.scalar(value, kind)), False)


__all__ = ["listed", "of_chain", "of_height", "worst_first"]
