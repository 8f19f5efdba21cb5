"""Hash trees, digests and, later, the proofs that other people's software accepts."""
