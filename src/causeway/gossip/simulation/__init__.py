"""A simulation of nodes that gossip egress queues, thousands at once, on the kernel contract (ICMP reference 1.4, 5.1).

A chain of this kernel is a node, a tick is a slice of time, and what nodes send each other are rows that reach the
peer a link's latency later. Every node runs ``gossip.step``, the state machine that a real process runs.
"""
