"""The public vectors of Substrate's tries and of XDM, as the tests read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def vectors(shared_folder: Path, name: str) -> Any:
    """Return the content of a vector file."""
    return json.loads((shared_folder / "vectors" / "substrate" / name).read_text())


def unhex(items: list[str]) -> list[bytes]:
    """Return hexadecimal strings as bytes."""
    return [bytes.fromhex(item) for item in items]
