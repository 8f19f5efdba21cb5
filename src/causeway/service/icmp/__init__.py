"""Nodes that gossip egress queues as processes of their own, and the network of them on one machine."""
