"""Java before the scenario is checked: what a scenario asks of Spark is looked up in its text, while nothing else of
this command is imported yet.

It is a guess. ``load_scenario`` says what is wrong with a scenario, and a session that is asked for with other
arguments takes the place of one that was guessed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from causeway_proofs.errors import InvalidInput

from causeway.config.document import override_key, read_document

EXECUTOR: Final = "spark"
MASTER = "local[*]"
"""What runs a scenario that does not say it."""

_WORDS = {True: "true", False: "false"}


def spark_setting_texts(settings: Mapping[str, str | int | bool]) -> dict[str, str]:
    """Return settings of Spark as texts."""
    return {key: _WORDS[value] if isinstance(value, bool) else str(value) for key, value in settings.items()}


def prestart_jvm(path: str | os.PathLike[str], overrides: Mapping[str, str]) -> bool:
    """Start Java where a scenario seems to run on Spark on this machine; return at once, whether it runs on Spark."""
    if not Path(path).is_file():
        return False  # of a pipe nothing would be left
    try:
        network = _network(Path(path), overrides)
    except InvalidInput:
        return False
    master, settings = network.get("master", MASTER), network.get("spark", {})
    if network.get("executor", EXECUTOR) != EXECUTOR or not isinstance(master, str) or not isinstance(settings, dict):
        return False
    from causeway.spark.masters import is_local
    from causeway.spark.session import start_session

    if is_local(master):
        with contextlib.suppress(InvalidInput):
            start_session(master, extra=spark_setting_texts(settings))
    return True


def _network(path: Path, overrides: Mapping[str, str]) -> dict[str, Any]:
    document = read_document(path)
    for key, text in overrides.items():
        override_key(document, key, text)
    network = document.get("network", {})
    return network if isinstance(network, dict) else {}
