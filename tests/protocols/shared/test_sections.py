"""Digests of tables: reused digests equal a full recomputation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from causeway.core.frame import Frame, repeat_value
from causeway.protocols.shared import digests
from causeway.protocols.shared.digests import TableDigests, digest_columns_by_chain, digest_rows_by_chain

CHAINS = np.arange(2, 22, dtype=np.uint32)


def table(owners: list[int], numbers: list[int], texts: bool) -> Frame:
    """Build a table with a row per owner: numbers, digests and, if requested, texts."""
    number = np.array(numbers, dtype=np.uint64)
    columns: dict[str, Any] = {"owner": np.array(owners, dtype=np.uint32), "number": number}
    columns["zero"] = repeat_value(np.uint64(0), len(owners))
    if texts:
        columns["root"] = np.repeat(number.astype(np.uint8)[:, None], 32, axis=1)
        columns["payload"] = pa.array([b"x" * (one % 5) for one in numbers], pa.binary())
        columns["method"] = pa.array([f"m{one % 3}" for one in numbers], pa.string()).dictionary_encode()
    return Frame(columns, len(owners))


def alter_rows(draws: np.random.Generator, owners: list[int], numbers: list[int]) -> tuple[list[int], list[int]]:
    """Return a table after insertions, removals and changes of a few rows."""
    owners, numbers = owners.copy(), numbers.copy()
    for _ in range(int(draws.integers(0, 4))):
        row, kind = int(draws.integers(0, len(owners) + 1)), int(draws.integers(0, 3))
        if kind == 0:
            owners.insert(row, int(draws.integers(0, 24)))
            numbers.insert(row, int(draws.integers(0, 1 << 33)))
        elif row < len(owners) and kind == 1:
            del owners[row], numbers[row]
        elif row < len(owners):
            numbers[row] += 1
    return owners, numbers


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize(
    ("hashing", "texts"),
    [(digest_rows_by_chain, True), (digest_rows_by_chain, False), (digest_columns_by_chain, False)],
)
def test_reused_digests_equal_recomputed_ones(
    hashing: Callable[..., TableDigests], texts: bool, ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "MANY", 1)
    draws = np.random.default_rng(7)
    before, taken_over = None, 0
    owners, numbers = draws.integers(0, 24, 60).tolist(), draws.integers(0, 1 << 20, 60).tolist()
    for _ in range(120):
        owners, numbers = alter_rows(draws, owners, numbers)
        if ordered:
            order = np.argsort(owners, kind="stable").tolist()
            owners, numbers = [owners[row] for row in order], [numbers[row] for row in order]
        rows = table(owners, numbers, texts)
        fresh = hashing(rows, rows["owner"], CHAINS)
        section = hashing(rows, rows["owner"], CHAINS, before)
        assert section.digests == fresh.digests
        if before is not None:
            same = np.setdiff1d(np.arange(len(CHAINS)), section.changed)
            assert [before.digests[chain] for chain in same] == [section.digests[chain] for chain in same]
            taken_over += len(same)
        before = section
    assert taken_over > 120 * len(CHAINS) // 2


def test_column_width_fits_the_largest_number_of_each_chain() -> None:
    numbers = [0, 0, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**64 - 1]
    owner: npt.NDArray[np.uint32] = np.arange(len(numbers), dtype=np.uint32)
    rows = Frame({"number": np.array(numbers, dtype=np.uint64)})
    alone = [
        digest_columns_by_chain(rows.slice(row, row + 1), owner[row : row + 1], owner[row : row + 1]).digests[0]
        for row in owner
    ]
    assert digest_columns_by_chain(rows, owner, owner).digests == alone
    assert len(set(alone)) == len(set(numbers))
