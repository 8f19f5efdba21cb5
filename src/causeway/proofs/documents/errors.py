"""What a document can be refused for that no family's verifier looks at."""

from __future__ import annotations

from causeway.proofs.errors import NotProven


class ClaimMismatch(NotProven):
    """The proof holds, and shows something else than the document claims."""
