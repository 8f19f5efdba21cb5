"""Proofs out of lakes of parachains: the relay chain's lists, and messages in egress queues (ICMP reference 3.1)."""
