"""Documents, topology, traffic and faults, as protocols read them."""
