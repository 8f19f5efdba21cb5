"""Proofs from lakes of domains: messages, from mountain range to storage (XDM reference 2.4)."""
