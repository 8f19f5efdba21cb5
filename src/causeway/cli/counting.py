"""What the commands about messages share: which messages count, who counts, and in which form it is printed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from causeway.cli import completion, shell
from causeway.cli.options import argument, option

if TYPE_CHECKING:
    import pyarrow as pa

    from causeway.figures.figures import Figures
    from causeway.figures.where import Where
    from causeway.pipeline.ledger_passes import Progress
    from causeway.pipeline.ledger_store import Ledger

OUTPUT, HOW = "Output", "How"

MOST_LIMIT = (1 << 31) - 2
"""So many rows are asked for by ``--limit`` at most: what Spark and Arrow count in one piece."""

LANES = 10
"""Lanes that a person sees where no other number is asked for."""


_MOST_SAID = 500
"""Characters of a line about names, which come from strangers."""


Place = Annotated[str, argument("Folder or URI of a ledger, or of a lake of a run.", metavar="LAKE")]
Lanes = Annotated[
    int | None,
    option(
        f"Lanes to show; default: {LANES}, all with --json and --csv.",
        "--limit",
        metavar="N",
        panel=OUTPUT,
        min=0,
        max=MOST_LIMIT,
    ),
]
OverTime = Annotated[bool, option("Show how it was over time, as a plot.", "--over-time", panel=OUTPUT)]
Json = Annotated[bool, option("Print one JSON object.", "--json", panel=OUTPUT)]
Overwrite = Annotated[bool, option("With --parquet: replace a file.", "--overwrite", panel=OUTPUT)]
Csv = Annotated[bool, option("Print CSV.", "--csv", panel=OUTPUT)]
Executor = Annotated[
    str,
    option(
        "in_process, spark, or auto: by the number of rows.",
        metavar="HOW",
        panel=HOW,
        autocompletion=completion.ways_to_audit,
        show_default=True,
    ),
]
Master = Annotated[
    str, option("Spark master, such as 'local[2]' or spark://host:7077.", metavar="URL", panel=HOW, show_default=True)
]


@contextmanager
def opened(lake: str) -> Iterator[tuple[Ledger, Progress]]:
    """Give the ledger at a path or URI, of a lake one that is derived from it, and what shows how much is counted."""
    from causeway.cli.audited import progress_bar
    from causeway.cli.compiling import compile_first
    from causeway.cli.places import ledger_at, require_place
    from causeway.pipeline.lake_taking import ledger_of

    require_place("LAKE", lake)
    compile_first()
    with ledger_at(lake), progress_bar() as begin, ledger_of(lake, progress=begin("deriving the ledger")) as ledger:
        yield ledger, begin("counting")


def figures(lake: str, where: Where, executor: str, master: str, worst: int = 0) -> Figures:
    """Return the figures of the messages asked for. Raises ``InvalidInput``, ``LedgerDamaged``."""
    from causeway.pipeline.ledger_figures import figures_of

    with opened(lake) as (ledger, progress):
        found = figures_of(
            ledger, where=where, executor=executor, master=master, worst=max(worst, 1), progress=progress
        )
        if not found.totals["messages"]:
            tell_unknown(ledger, where)
    return found


def messages(ledger: Ledger, where: Where) -> Iterator[pa.Table]:
    """Yield the messages asked for; where there are none, say which names of lanes there are not."""
    from causeway.pipeline.ledger_figures import messages_of

    none = True
    for part in messages_of(ledger, where):
        none &= not part.num_rows
        yield part
    if none:
        tell_unknown(ledger, where)


def tell_unknown(ledger: Ledger, where: Where) -> None:
    """Say of each chain and lane asked for that no row of the ledger names."""
    from causeway.model.text import escaped, start_of, unknown

    asked = {**where.lanes, **({"chain": [name for names in where.chains for name in names]} if where.chains else {})}
    columns = {name: ("source", "destination") if name == "chain" else (name,) for name in asked}
    known: dict[str, set[str]] = {name: set() for name in asked}
    for bucket in range(ledger.buckets) if known else ():
        rows = ledger.rows(bucket, [*dict.fromkeys(column for each in columns.values() for column in each)])
        for name, names in known.items():
            for column in columns[name]:
                names |= {*rows[column].unique().to_pylist()} - {None}
    for name, names in known.items():
        for value in asked[name]:
            if value not in names:
                kind = "lane" if name == "lane" else "chain of a message" if name == "chain" else f"{name} of a message"
                shell.tell(f"--{name}: {start_of(escaped(unknown(kind, value, sorted(names))), _MOST_SAID)}")


def largest(rows: pa.Table, order: Sequence[tuple[str, str]], limit: int | None) -> pa.Table:
    """Return the first rows in some order, null last; equal ones in the order in which they stand."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if not rows.num_rows:
        return rows
    place = pa.array(np.arange(rows.num_rows))
    keyed = rows.append_column("_place", place)
    found = pc.sort_indices(keyed, sort_keys=[*order, ("_place", "ascending")])
    return rows.take(found if limit is None else found[:limit])


__all__ = ["LANES", "MOST_LIMIT", "figures", "largest", "messages", "opened", "tell_unknown"]
