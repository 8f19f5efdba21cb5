"""Who signs for a served lake's chains: its own validators, and chains that certify, with keys in files;
validators of other lakes are listed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from causeway.model.errors import InvalidInput
from causeway.model.text import unknown
from causeway.network.scenario import Scenario
from causeway.protocols.secrets import LISTED, LISTED_CHAINS, Secrets
from causeway.service.keys import public_key, read_chain_key, read_key


@dataclass(frozen=True)
class ValidatorKeys:
    """The keys of a served lake. ``files``: of the keys that sign, by chain; ``secrets``: what is in them; ``newest``:
    whether the lake is its newest copy, where what was signed last is not known any more; ``drawn``: the chains whose
    keys are drawn from the seed."""

    files: Mapping[str, Sequence[Path]] = field(default_factory=dict)
    secrets: Secrets = field(default_factory=Secrets)
    newest: bool = False
    drawn: Sequence[str] = ()


def with_chain_keys(
    scenario: Scenario, own: Sequence[str] = (), *, newest: bool = False
) -> tuple[Scenario, ValidatorKeys]:
    """Return a scenario that lists the public keys of its chains whose secret keys are in files, and those keys.

    Args:
        scenario: what it lists itself stays.
        own: ``CHAIN=FILE``: the key file of a chain that this lake runs.
        newest: as in ``ValidatorKeys``.

    Raises:
        InvalidInput: the protocol's chains do not certify with keys, a chain or key is none, another lake runs it, or
            the scenario lists another key.
    """
    if not scenario.protocol.certifies:
        if own:
            raise InvalidInput(f"--chain-key: chains of {scenario.network.protocol} do not certify their states")
        return scenario, ValidatorKeys()
    chains = scenario.own_topology()
    named = zip(chains.chains["name"].to_pylist(), chains.chains["number"].to_pylist(), strict=True)
    names = [name for name, number in named if number not in chains.external]
    listed: dict[str, str] = dict(scenario.options.get(LISTED_CHAINS, {}))
    files: dict[str, list[Path]] = {}
    seeds: dict[bytes, bytes] = {}
    for text in own:
        chain, path = _parts(text, "--chain-key", "CHAIN=FILE", names)
        key = read_chain_key(Path(path))
        if chain in files:
            raise InvalidInput(f"--chain-key: {chain}: given twice; a chain has one key")
        if key.public in seeds:
            raise InvalidInput(f"--chain-key: {chain}: {path} is another chain's key; each has one of its own")
        if listed.setdefault(chain, key.public.hex()) != key.public.hex():
            text = f"holds another key than options.{LISTED_CHAINS} lists for {chain}"
            raise InvalidInput(f"--chain-key: {path}: {text}")
        files[chain], seeds[key.public] = [Path(path)], key.seed
    content: dict[str, Any] = {**scenario.options, **({LISTED_CHAINS: listed} if listed else {})}
    document = scenario.document.model_copy(update={"options": content})
    certified = content.get("certification") != "off"
    drawn = [name for name in names if certified and name not in listed]
    return replace(scenario, document=document), ValidatorKeys(files, Secrets(seeds), newest, drawn)


def with_validators(
    scenario: Scenario,
    own: Sequence[str] = (),
    others: Sequence[str] = (),
    *,
    drawn: bool = False,
    newest: bool = False,
) -> tuple[Scenario, ValidatorKeys]:
    """Return a scenario that lists the validators of its chains, and the keys of those that are here.

    Args:
        scenario: what it lists itself stays.
        own: ``CHAIN=FILE``: a key file of a validator of a chain that this lake runs.
        others: ``CHAIN=KEY,KEY``: the public keys of the validators of another chain.
        drawn: whether chains may be left whose keys are drawn from the seed.
        newest: as in ``ValidatorKeys``.

    Raises:
        InvalidInput: the protocol's chains do not sign, a chain or key is none, they contradict the scenario, or a
            chain is left.
    """
    chains = scenario.own_topology()
    names: list[str] = chains.chains["name"].to_pylist()
    if not scenario.protocol.signs:
        if own or others:
            raise InvalidInput(f"--validator-key, --validators: chains of {scenario.network.protocol} do not sign")
        return scenario, ValidatorKeys()
    listed: dict[str, list[str]] = dict(scenario.options.get(LISTED, {}))
    files: dict[str, list[Path]] = {}
    seeds: dict[bytes, bytes] = {}
    given: dict[str, list[str]] = {}
    for text in own:
        chain, path = _parts(text, "--validator-key", "CHAIN=FILE", names)
        key = read_key(Path(path))
        files.setdefault(chain, []).append(Path(path))
        seeds[key.public] = key.seed
        given.setdefault(chain, []).append(key.public.hex())
    for chain, publics in given.items():
        for public in publics:
            if public not in listed.get(chain, publics):
                text = f"is the key of no validator that options.{LISTED} lists for {chain}"
                raise InvalidInput(f"--validator-key: {public}: {text}")
        listed.setdefault(chain, publics)
    for text in others:
        chain, value = _parts(text, "--validators", "CHAIN=KEY,KEY", names)
        publics = [public_key(part.strip(), "--validators").hex() for part in value.split(",")]
        if listed.setdefault(chain, publics) != publics:
            raise InvalidInput(f"--validators: {chain}: the scenario, the lake or --validator-key names others")
    left = [name for name in names if name not in listed]
    if left and not drawn:
        text = "its validators' keys would be drawn from the seed, which every reader of the scenario can do"
        option = f"--validator-key {left[0]}=FILE for a chain of this lake, --validators {left[0]}=KEY for another's"
        raise InvalidInput(f"{left[0]}: {text}: give {option}; or --drawn-keys for a simulation on this machine")
    content: dict[str, Any] = {**scenario.options, **({LISTED: listed} if listed else {})}
    document = scenario.document.model_copy(update={"options": content})
    return replace(scenario, document=document), ValidatorKeys(files, Secrets(seeds), newest)


def _parts(text: str, option: str, form: str, names: Sequence[str]) -> tuple[str, str]:
    chain, equals, value = text.partition("=")
    if not equals or not value:
        raise InvalidInput(f"{option}: {text!r}; write it as {form}")
    if chain not in names:
        raise InvalidInput(f"{option}: {unknown('chain', chain, names)}")
    return chain, value
