"""Subspace cross-domain messaging (XDM) behind the kernel contract."""
