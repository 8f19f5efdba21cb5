"""Proofs from lakes of zones: stores, packets, receipts, headers (IBC reference 2.3, 3.2)."""
