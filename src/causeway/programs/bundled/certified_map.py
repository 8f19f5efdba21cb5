"""A map on every subnet whose root is certified: whoever has the subnet's key can check an entry that anybody shows.

The entries are the leaves of one hash tree (keys are labels, IC reference 2.9), and the tree's root is the program's
certified data. Ingress methods:

- ``put``, payload ``key=value``: store an entry, in place of one under the same key (what stands before the first
  ``=``).
- ``remove``, payload ``key``: remove the entry; nothing changes where there is none.

The call ``get``, payload ``key``, is answered with a CBOR map: ``value`` (null where there is none) and ``witness``,
the tree (CBOR) pruned to that key. Its root is the certified data as of the round in which the answer was made.
"""

from __future__ import annotations

from typing import Any

import cbor2
from causeway_proofs.ic.hash_tree import HashTree, build_tree, digest, encode_tree
from causeway_proofs.ic.lookup import prune

from causeway.programs.scalar import Context, Ingress, Program, Reject, Request


class CertifiedMap(Program):
    """Entries by key. Each change hashes all of them: it is meant for some thousands."""

    certifies = True

    def initial_state(self) -> dict[str, Any]:
        """Return no entries."""
        return {"entries": {}}

    def on_ingress(self, message: Ingress, context: Context) -> None:
        """Put or remove an entry, and set the new root as certified data."""
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
        """Show an entry, or that there is none, with a witness."""
        if request.method != "get":
            raise Reject(f"no method {request.method}; allowed: get")
        witness = encode_tree(prune(self._tree(), [(request.payload,)]))
        value = self.state["entries"].get(request.payload)
        return cbor2.dumps({"value": value, "witness": witness}, canonical=True)

    def _tree(self) -> HashTree:
        return build_tree(self.state["entries"])
