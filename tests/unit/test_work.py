"""What is counted of the work of rounds: the counts are those of the hashes that are computed, and nothing hashes
beside them."""

import hashlib
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from Crypto.Hash import keccak

import causeway
from causeway.network.network import Network
from causeway.proofs import work
from causeway.proofs.hashing import engines, functions
from causeway.protocols import sections
from causeway.protocols.registry import names

EXAMPLE = Path(__file__).parents[2] / "examples" / "two_subnets.toml"


def counting(called: dict[str, int], name: str, function):
    def count(*arguments, **named):
        called[name] += 1
        return function(*arguments, **named)

    return count


def ran(protocol: str, **settings: object) -> Network:
    overrides = {"network.protocol": f'"{protocol}"', "network.executor": '"in_process"'}
    network = Network.from_scenario(EXAMPLE, overrides | {f"network.{key}": str(it) for key, it in settings.items()})
    network.run()
    return network


@pytest.mark.parametrize("protocol", names())
def test_every_hash_is_counted_once(protocol, monkeypatch):
    monkeypatch.setattr(engines, "engine_for", lambda function, count: None)
    called = dict.fromkeys(work.HASHES, 0)
    hashes = SimpleNamespace(
        sha256=counting(called, work.SHA256, hashlib.sha256),
        blake2b=counting(called, work.BLAKE2B_256, hashlib.blake2b),
    )
    monkeypatch.setattr(functions, "hashlib", hashes)
    monkeypatch.setattr(sections, "hashlib", hashes)
    counted_keccak = counting(called, work.KECCAK_256, keccak.new)
    monkeypatch.setattr(functions, "_keccak", lambda: counted_keccak)
    before = work.snapshot()
    with ran(protocol) as network:
        done = work.since(before)
        in_rounds = {name: network.manifest.work.get(name, 0) for name in work.NAMES}
    assert {name: done.get(name, 0) for name in work.HASHES} == called
    assert all(0 <= in_rounds[name] <= called[name] for name in work.HASHES)
    assert sum(in_rounds[name] for name in work.HASHES) > 20
    assert in_rounds[work.PROOF_BYTES] > 0


@pytest.mark.parametrize("protocol", names())
def test_proofs_are_as_long_however_the_network_is_cut(protocol):
    found = set()
    for partitions, every in ((1, 1), (1, 4096), (2, 1)):
        with ran(protocol, partitions=partitions, commit_every=every) as network:
            found.add(network.manifest.work[work.PROOF_BYTES])
    assert len(found) == 1


UNCOUNTED = {
    "proofs/hashing/functions.py": "counts",
    "proofs/ibc/packets.py": "commitments of IBC's own packets: no round makes them",
    "proofs/ics23/encoded.py": "single proofs that a process from outside brings",
    "proofs/ics23/operations.py": "the same",
    "proofs/ics23/smt.py": "no zone has such a store",
    "proofs/ic/bls.py": "inside of signatures",
    "proofs/ic/certification.py": "names of keys",
    "proofs/ic/digests.py": "a constant",
    "proofs/merkle.py": "a constant",
    "proofs/substrate/hashing.py": "keys of storage maps",
    "proofs/tendermint/building.py": "a constant",
    "proofs/tendermint/keys.py": "names of keys",
    "protocols/ibc/validator_sets.py": "draws",
    "protocols/icmp/simulation/kernel.py": "a simulation of gossip",
    "protocols/sections.py": "counts by itself, since it hashes in parts",
}


def test_nothing_hashes_uncounted():
    root = Path(causeway.__file__).parent
    files = [*root.glob("proofs/**/*.py"), *root.glob("protocols/**/*.py")]
    found = {str(file.relative_to(root)) for file in files if re.search(r"hashlib|Crypto\.Hash", file.read_text())}
    assert found == set(UNCOUNTED)
