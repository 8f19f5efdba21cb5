"""The IBC messaging queue: zones, queues in a Merkle store, light clients, relayers."""
