"""Certified states whole, witnesses made from their data, and the parts of encodings one by one."""
