"""Gossip of egress queues: queues that reach nodes, and leaves that change."""
