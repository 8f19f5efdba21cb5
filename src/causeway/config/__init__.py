"""Documents, topology, traffic and faults as protocols see them."""
