"""Public keys of a scenario's subnets, for other deployments."""

from __future__ import annotations

from causeway.protocols.ic.subnet_keys import derive_public_key
from causeway.protocols.shared.secrets import LISTED_CHAINS
from causeway.scenarios.scenario import Scenario


def drawn_keys(scenario: Scenario) -> dict[str, str]:
    """Return the seed-derived public keys of a scenario's own subnets.

    Args:
        scenario: The scenario.

    Returns:
        Public keys (192 hexadecimal digits) by name, without subnets whose keys are in files.
    """
    chains = scenario.declared_topology()
    named = zip(chains.chains["name"].to_pylist(), chains.chains["number"].to_pylist(), strict=True)
    seed = scenario.network.seed
    listed = scenario.options.get(LISTED_CHAINS, {})
    return {
        name: derive_public_key(seed, number).hex()
        for name, number in named
        if number not in chains.external and name not in listed
    }
