"""Sketches against those that the C library writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from causeway.proofs.sketches.minisketch import Minisketch, NotDecodable


@pytest.fixture(scope="module")
def cases(shared_folder: Path) -> list[dict[str, Any]]:
    vectors = json.loads((shared_folder / "vectors/substrate/minisketch.json").read_text())
    cases: list[dict[str, Any]] = vectors["cases"]
    return cases


def test_sketches(cases: list[dict[str, Any]]) -> None:
    assert len(cases) == 5
    for case in cases:
        sketch = Minisketch(case["field_bits"], case["capacity"])
        sketch.add_all(case["elements"])
        assert sketch.serialize().hex() == case["sketch_hex"]
        read = Minisketch.deserialize(case["field_bits"], case["capacity"], bytes.fromhex(case["sketch_hex"]))
        assert read == sketch
        if case["decodable"]:
            assert read.decode() == sorted(case["elements"])
        else:
            with pytest.raises(NotDecodable):
                read.decode()


def test_one_by_one_is_the_same(cases: list[dict[str, Any]]) -> None:
    for case in cases:
        sketch = Minisketch(case["field_bits"], case["capacity"])
        for element in case["elements"]:
            sketch.add(element)
        assert sketch.serialize().hex() == case["sketch_hex"]
