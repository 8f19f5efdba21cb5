"""Compare protocols on the same traffic: outcomes, costs, guarantees and faults."""
