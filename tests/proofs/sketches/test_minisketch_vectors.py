"""Sketches against those of the C library."""

from __future__ import annotations

from typing import Any

import pytest
from causeway_proofs.sketches.pin_sketch import Minisketch, NotDecodable

from tests.vectors import load_vectors


@pytest.fixture(scope="module")
def cases() -> list[dict[str, Any]]:
    sketches: list[dict[str, Any]] = load_vectors("sketches")["sketches"]
    return sketches


def test_sketches(cases: list[dict[str, Any]]) -> None:
    assert len(cases) == 5
    for case in cases:
        sketch = Minisketch(case["bits"], case["capacity"])
        sketch.add_all(case["elements"])
        assert sketch.serialize().hex() == case["sketch"]
        read = Minisketch.deserialize(case["bits"], case["capacity"], bytes.fromhex(case["sketch"]))
        assert read == sketch
        if case["decodable"]:
            assert read.decode() == sorted(case["elements"])
        else:
            with pytest.raises(NotDecodable):
                read.decode()


def test_column_sketches_equal_single_sketches(cases: list[dict[str, Any]]) -> None:
    for case in cases:
        sketch = Minisketch(case["bits"], case["capacity"])
        for element in case["elements"]:
            sketch.add(element)
        assert sketch.serialize().hex() == case["sketch"]
