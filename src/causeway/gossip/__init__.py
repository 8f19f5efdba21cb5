"""Gossip of egress queues as a state machine without I/O (ICMP reference 2.4, 2.5, 3.5 to 3.8).

Columns carry the node: one node and five thousand are one implementation, and what happens at one node does not depend
on which others are in the call. ``step`` takes what came to nodes and returns what they send; who calls it owns
sockets, clocks and the bodies of queues, which are named here by their roots.
"""
