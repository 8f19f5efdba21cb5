"""Gossip nodes as processes."""
