"""Polkadot's egress queues (ICMP): a relay chain that knows queues by their roots, and parachains that fetch them.

Not registered yet: forks, gossip, faults and pages are to come.
"""
