"""Relaying between chains: proofs, envelopes and carriers."""
