"""Calls of cross-domain messaging: one module a call or message kind."""
