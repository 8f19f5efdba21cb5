"""Certified streams between subnets."""
