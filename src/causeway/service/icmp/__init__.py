"""What a run says of the relay chain; nodes that gossip egress queues as processes, and the network of them."""
