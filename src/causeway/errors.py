"""Errors that callers of the engine catch."""

from causeway_proofs.errors import CausewayError, InvalidInput

__all__ = ["CausewayError", "InvalidInput"]
