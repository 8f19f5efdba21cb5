"""A map with a certified root on every subnet: the subnet's key verifies each entry.

The entries are the leaves of a hash tree (keys are labels, IC reference 2.9). Its root is the program's certified data.
Ingress methods:

- ``put``, payload ``key=value``: store an entry; the key ends at the first ``=``.
- ``remove``, payload ``key``: remove the entry, if any.

The call ``get``, payload ``key``, returns a CBOR map: ``value`` (null if absent) and ``witness``, the tree (CBOR)
pruned to that key. Its root is the certified data of the round of the answer.
"""

from __future__ import annotations

from typing import Any

import cbor2
from causeway_proofs.ic.hash_tree import HashTree, build_tree, digest, encode_tree
from causeway_proofs.ic.lookup import prune

from causeway.programs.scalar import Context, Ingress, Program, Reject, Request


class CertifiedMap(Program):
    """Entries by key. Each change hashes all entries, so it suits some thousands."""

    certifies = True

    def initial_state(self) -> dict[str, Any]:
        """Return an empty map."""
        return {"entries": {}}

    def on_ingress(self, message: Ingress, context: Context) -> None:
        """Put or remove an entry, and certify the new root."""
        key, separator, value = message.payload.partition(b"=")
        if message.method == "put" and separator:
            self.state["entries"][key] = value
        elif message.method == "put":
            raise ValueError("the payload of put is key=value")
        elif message.method == "remove":
            self.state["entries"].pop(message.payload, None)
        else:
            raise ValueError(f"no ingress method {message.method}; allowed: put, remove")
        context.set_certified_data(digest(self._tree()))

    def on_request(self, request: Request, context: Context) -> bytes:
        """Return an entry, or its absence, with a witness."""
        if request.method != "get":
            raise Reject(f"no method {request.method}; allowed: get")
        witness = encode_tree(prune(self._tree(), [(request.payload,)]))
        value = self.state["entries"].get(request.payload)
        return cbor2.dumps({"value": value, "witness": witness}, canonical=True)

    def _tree(self) -> HashTree:
        return build_tree(self.state["entries"])
