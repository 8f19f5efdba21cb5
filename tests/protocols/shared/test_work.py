"""Work counts of rounds: every computed hash is counted, and none elsewhere."""

import hashlib
import re
from pathlib import Path
from types import SimpleNamespace

import causeway_proofs
import pytest
from causeway_proofs import work
from causeway_proofs.hashing import columns, functions
from Crypto.Hash import keccak

import causeway
from causeway.network.network import LakeNetwork
from causeway.protocols.registry import protocol_names
from causeway.protocols.shared import digests

EXAMPLE = Path(__file__).parents[3] / "examples" / "two_subnets.toml"


def counting(called: dict[str, int], name: str, function):
    def count(*arguments, **named):
        called[name] += 1
        return function(*arguments, **named)

    return count


def run_example(protocol: str, **settings: object) -> LakeNetwork:
    overrides = {"network.protocol": f'"{protocol}"', "network.executor": '"in_process"'}
    network = LakeNetwork.from_scenario(
        EXAMPLE, overrides | {f"network.{key}": str(it) for key, it in settings.items()}
    )
    network.run()
    return network


@pytest.mark.parametrize("protocol", protocol_names())
def test_every_hash_is_counted_once(protocol, monkeypatch):
    monkeypatch.setattr(columns, "engine_for", lambda function, count: None)
    called = dict.fromkeys(work.HASHES, 0)
    hashes = SimpleNamespace(
        sha256=counting(called, work.SHA256, hashlib.sha256),
        blake2b=counting(called, work.BLAKE2B_256, hashlib.blake2b),
    )
    monkeypatch.setattr(functions, "hashlib", hashes)
    monkeypatch.setattr(digests, "hashlib", hashes)
    counted_keccak = counting(called, work.KECCAK_256, keccak.new)
    monkeypatch.setattr(functions, "_keccak", lambda: counted_keccak)
    before = work.snapshot()
    with run_example(protocol) as network:
        done = work.work_since(before)
        in_rounds = {name: network.manifest.work.get(name, 0) for name in work.NAMES}
    assert {name: done.get(name, 0) for name in work.HASHES} == called
    assert all(0 <= in_rounds[name] <= called[name] for name in work.HASHES)
    assert sum(in_rounds[name] for name in work.HASHES) > 20
    assert in_rounds[work.PROOF_BYTES] > 0


@pytest.mark.parametrize("protocol", protocol_names())
def test_proof_bytes_are_independent_of_partitioning(protocol):
    found = set()
    for partitions, every in ((1, 1), (1, 4096), (2, 1)):
        with run_example(protocol, partitions=partitions, commit_every=every) as network:
            found.add(network.manifest.work[work.PROOF_BYTES])
    assert len(found) == 1


UNCOUNTED = {
    "causeway_proofs/hashing/functions.py": "counts",
    "causeway_proofs/ibc/commitments.py": "commitments of IBC's own packets: no round makes them",
    "causeway_proofs/ics23/existence.py": "single proofs that a process from outside brings",
    "causeway_proofs/ics23/proof_specs.py": "the same",
    "causeway_proofs/jit_cache.py": "names of folders",
    "gossip/processes/trace.py": "a seal of a file",
    "causeway_proofs/ic/bls.py": "inside of signatures",
    "causeway_proofs/ic/certification.py": "names of keys",
    "causeway_proofs/ic/hash_tree.py": "a constant",
    "causeway_proofs/merkle.py": "a constant",
    "causeway_proofs/substrate/storage_keys.py": "keys of storage maps",
    "causeway_proofs/tendermint/building.py": "a constant",
    "causeway_proofs/tendermint/validators.py": "names of keys",
    "protocols/ibc/client.py": "draws",
    "gossip/simulation/kernel.py": "a simulation of gossip",
    "protocols/shared/digests.py": "counts by itself, since it hashes in parts",
}


def test_nothing_hashes_uncounted():
    engine, proofs = Path(causeway.__file__).parent, Path(causeway_proofs.__file__).parent
    files = {
        **{str(file.relative_to(proofs.parent)): file for file in proofs.rglob("*.py")},
        **{
            str(file.relative_to(engine)): file
            for name in ("protocols", "gossip")
            for file in (engine / name).rglob("*.py")
        },
    }
    examined = ("causeway_proofs/", "protocols/", "gossip/")
    files = {name: file for name, file in files.items() if name.startswith(examined)}
    found = {name for name, file in files.items() if re.search(r"hashlib|Crypto\.Hash", file.read_text())}
    assert found == set(UNCOUNTED)
