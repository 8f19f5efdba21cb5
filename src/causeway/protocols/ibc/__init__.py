"""The IBC messaging queue: zones, send and receipt queues in a Merkle store, light clients, and relayers."""
