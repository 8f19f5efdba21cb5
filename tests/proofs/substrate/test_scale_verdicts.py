"""One verdict on SCALE: one value at a time and columns agree, over random types and bytes."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput, ProofError
from causeway_proofs.substrate.scale_columns import ScaleColumns

from tests.fuzz.mutations import mutations
from tests.support.properties.scale_encodings import RandomType, column_leaves, leaves, random_encoding, random_types
from tests.tiers import sized

TYPES = sized(2_000, 50_000)
SEEDS, MUTATIONS = 12, 24


def own_verdict(drawn: RandomType, data: bytes) -> tuple[Any, str | None]:
    """Return the value of an encoding, or the reason of its refusal."""
    try:
        return drawn.types.decode(drawn.name, data, "it"), None
    except ProofError as error:
        return None, f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("seed", range(2))
def test_both_forms_have_one_verdict_and_one_value(seed: int) -> None:
    chance = Random(seed)
    told: Counter[bool] = Counter()
    in_columns = 0
    for drawn in random_types(chance, TYPES // 2):
        shape = drawn.shape
        seeds = [random_encoding(shape, chance) for _ in range(SEEDS)]
        tried = [*seeds, *mutations(seeds, MUTATIONS, chance)]
        found = [own_verdict(drawn, data) for data in tried]
        for data, (value, refusal) in zip(tried, found, strict=True):
            told[refusal is None] += 1
            assert refusal is not None or drawn.types.encode(drawn.name, value) == data
        try:
            columns = ScaleColumns(drawn.types, drawn.name, "it")
        except InvalidInput:
            continue  # Not every type has columns.
        in_columns += 1
        decoded = columns.decode(pa.array(tried, pa.large_binary()))
        errors = map(decoded.verdicts.error, range(len(tried)))
        assert [error and f"{type(error).__name__}: {error}" for error in errors] == [refusal for _, refusal in found]
        good = decoded.verdicts.codes == 0
        for row, (value, refusal) in zip(decoded.columns.to_pylist(), found, strict=True):
            assert Counter(column_leaves(row)) == (Counter() if refusal else Counter(leaves(shape, value)))
        kept = [data for data, accepted in zip(tried, good, strict=True) if accepted]
        assert columns.encode(decoded.columns.filter(pa.array(good))).to_pylist() == kept
    assert min(told.values()) > TYPES and in_columns > TYPES // 8
