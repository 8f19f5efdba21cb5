"""Build and verify the proofs that deployed chains accept, without clock, network or Spark.

One package a family, each with its public names:

- ``ic``: certificates and stream slices of the Internet Computer.
- ``ics23``: store proofs of IBC chains.
- ``ibc``: commitments and keys of packets in these stores.
- ``tendermint``: headers and light clients.
- ``substrate``: tries, storage proofs and message queues.
- ``xdm``: cross-domain messages.
- ``mmr``: Merkle mountain ranges.
- ``sketches``: set reconciliation.
- ``documents``: all of these as JSON documents with a verdict.

Importing one package imports only its dependencies.

Every verifier returns if the proof holds and raises a ``ProofError`` otherwise. Builders raise ``InvalidInput``.
"""

from __future__ import annotations

from causeway_proofs.errors import InvalidInput, MalformedProof, NotProven, OverLimit, ProofError
from causeway_proofs.steps import Step

__all__ = ["InvalidInput", "MalformedProof", "NotProven", "OverLimit", "ProofError", "Step"]
