"""Whole cycles of the IBC queue: a packet sent, proved, received, its receipt proved and taken."""
