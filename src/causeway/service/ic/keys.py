"""The public keys of a scenario's subnets, as other deployments are told them."""

from __future__ import annotations

from causeway.protocols.ic.subnet_keys import derive_public_key
from causeway.protocols.shared.secrets import LISTED_CHAINS
from causeway.scenarios.scenario import Scenario


def drawn_keys(scenario: Scenario) -> dict[str, str]:
    """Return the public key (192 hexadecimal digits) of each subnet that a scenario runs itself, by name; those whose
    keys are in files are left out."""
    chains = scenario.declared_topology()
    named = zip(chains.chains["name"].to_pylist(), chains.chains["number"].to_pylist(), strict=True)
    seed = scenario.network.seed
    listed = scenario.options.get(LISTED_CHAINS, {})
    return {
        name: derive_public_key(seed, number).hex()
        for name, number in named
        if number not in chains.external and name not in listed
    }
