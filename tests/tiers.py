"""Test tiers and the amount of work of each.

The Makefile and ``.ci/run`` set the environment variable ``CAUSEWAY_TIER`` to the name of the tier. Without the
variable the tier is ``test``. docs/reference/verification.md describes the tiers.
"""

from __future__ import annotations

import os

VARIABLE = "CAUSEWAY_TIER"
"""Environment variable that names the tier."""

LAKES = {"quick": 10, "test": 40, "ci": 80, "soak": 5_000}
"""Number of generated lakes that a property of lakes runs on, by tier."""


def current_tier() -> str:
    """Return the name of the tier that is running.

    Returns:
        One of the keys of ``LAKES``.

    Raises:
        ValueError: ``CAUSEWAY_TIER`` names no tier.
    """
    tier = os.environ.get(VARIABLE) or "test"
    if tier not in LAKES:
        raise ValueError(f"{VARIABLE}: unknown tier {tier!r} (allowed: {', '.join(LAKES)})")
    return tier


def sized(usual: int, soak: int) -> int:
    """Return the size of a random test: its number of seeds, examples or damaged inputs.

    Args:
        usual: in all tiers but soak.
        soak: in the tier soak.
    """
    return soak if current_tier() == "soak" else usual


def generated_lakes() -> int:
    """Return the number of generated lakes that a property test runs on in this tier.

    Use it wherever a test builds lakes from seeds, instead of a constant, so that the same test is short in
    ``make quick`` and long in ``make soak``:

        @pytest.mark.parametrize("seed", range(generated_lakes()))

    A test of which one lake takes long may run on a fixed fraction of the number, but never on less than one lake.

    Returns:
        10 in the tier quick, 40 in test, 80 in ci, 5,000 in soak.

    Raises:
        ValueError: ``CAUSEWAY_TIER`` names no tier.
    """
    return LAKES[current_tier()]
