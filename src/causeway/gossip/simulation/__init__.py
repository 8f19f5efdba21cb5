"""Simulation of thousands of nodes that gossip egress queues (ICMP reference 1.4, 5.1).

It runs on the kernel contract: a chain is a node, a tick is a slice of time, and messages between
nodes are rows that arrive after the link's latency. Every node runs ``gossip.step``, the state
machine of a real process.
"""
