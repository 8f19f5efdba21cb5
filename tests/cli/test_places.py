"""Paths of drawings: overwritten only by drawings, and validated before any computation."""

from __future__ import annotations

from pathlib import Path

import pytest
from causeway_proofs.errors import InvalidInput

from causeway.cli.output_paths import require_svg_target


def test_drawing_overwrites_only_a_drawing(tmp_path: Path) -> None:
    new, old, other = (tmp_path / name for name in ("new.svg", "old.svg", "scenario.toml"))
    old.write_text("<svg xmlns='...'>")
    other.write_text("[network]\n")
    for place in (new, old):
        require_svg_target("--plot", place, None)
    assert not new.exists() and old.read_text().startswith("<svg")
    with pytest.raises(InvalidInput, match=r"scenario\.toml: exists and is no SVG drawing; name another file"):
        require_svg_target("--plot", other, None)
    assert other.read_text() == "[network]\n"
    with pytest.raises(InvalidInput, match="cannot be written: No such file or directory"):
        require_svg_target("--plot", tmp_path / "none" / "x.svg", None)
