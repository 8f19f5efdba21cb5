"""Proofs out of lakes of domains: messages and responses, from mountain range to storage (XDM reference 2.4)."""
