"""Packet commitments, acknowledgements and keys of deployed IBC chains, versions 1 and 2 (IBC reference X-7, X-8)."""
