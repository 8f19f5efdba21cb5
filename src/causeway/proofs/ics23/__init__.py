"""ICS-23: Merkle proofs of presence and absence under a proof spec, and the stores that they are taken from."""
