"""Proofs from lakes of parachains: relay chain lists, messages (ICMP reference 3.1)."""
