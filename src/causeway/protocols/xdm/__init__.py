"""Subspace cross-domain messaging (XDM)."""
