"""Proofs that deployed chains accept, built and verified: a library of its own, without clock, network or Spark.

One package a family, each with its public names: ``ic`` (certificates and stream slices of the Internet Computer),
``ics23`` (stores of IBC chains) and ``ibc`` (what is stored there), ``tendermint`` (headers, light clients),
``substrate`` (tries, storage, queues), ``xdm`` (messages between domains), ``mmr`` (mountain ranges), ``sketches`` (set
differences), ``documents`` (all of these as JSON documents with a verdict). Importing one imports no other but what it
stands on.

Every verifier returns when a proof holds and raises a ``ProofError`` when not; builders raise ``InvalidInput``.
"""

from __future__ import annotations

from causeway_proofs.errors import InvalidInput, MalformedProof, NotProven, OverLimit, ProofError
from causeway_proofs.steps import Step

__all__ = ["InvalidInput", "MalformedProof", "NotProven", "OverLimit", "ProofError", "Step"]
