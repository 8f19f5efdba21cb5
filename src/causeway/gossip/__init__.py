"""State machine of egress queue gossip, without I/O (ICMP reference 2.4, 2.5, 3.5 to 3.8).

Columns carry the node, so one call handles one node or five thousand; a node's result does not depend
on the other nodes in the call. ``step`` maps arrived input to output. The caller owns sockets, clocks
and the bodies of queues, which are identified here by their roots.
"""
