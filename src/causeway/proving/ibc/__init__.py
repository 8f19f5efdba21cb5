"""Proofs out of lakes of zones: stores, packets and receipts in them, headers (IBC reference 2.3, 3.2)."""
