"""Relay process between served lakes."""
