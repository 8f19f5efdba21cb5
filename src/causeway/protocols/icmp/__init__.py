"""Polkadot's egress queues (ICMP).

The relay chain knows queues by their roots; parachains fetch the bodies.
"""
