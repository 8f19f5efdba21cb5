"""Early start of Java, before the scenario is validated.

The scenario's text is searched for its Spark settings, while the rest of the command is not yet imported. The result is
a guess: ``load_scenario`` reports errors later, and a session requested with other arguments replaces a guessed one.
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
"""Default executor of a scenario."""
MASTER = "local[*]"
"""Default master of a scenario."""

_WORDS = {True: "true", False: "false"}


def spark_setting_texts(settings: Mapping[str, str | int | bool]) -> dict[str, str]:
    """Return Spark settings as text."""
    return {key: _WORDS[value] if isinstance(value, bool) else str(value) for key, value in settings.items()}


def prestart_jvm(path: str | os.PathLike[str], overrides: Mapping[str, str]) -> bool:
    """Start Java if a scenario seems to run on local Spark.

    Args:
        path: The scenario file.
        overrides: TOML values by dotted key of the file.

    Returns:
        True if it seems to run on Spark.
    """
    if not Path(path).is_file():
        return False  # reading would consume a pipe
    try:
        network = _network(Path(path), overrides)
    except InvalidInput:
        return False
    master, settings = network.get("master", MASTER), network.get("spark", {})
    if network.get("executor", EXECUTOR) != EXECUTOR or not isinstance(master, str) or not isinstance(settings, dict):
        return False
    from causeway.cluster.masters import is_local
    from causeway.cluster.session import start_session

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
