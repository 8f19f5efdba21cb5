"""Causeway routes messages between chains and proves that they arrived."""

__version__ = "0.1.0"
