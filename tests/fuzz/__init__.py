"""Decoders and verifiers under arbitrary bytes.

Each family's module has ``TARGETS``: by name, a function that takes bytes and lets pass only exceptions that are a
mistake, and the seeds to start from. ``run.py`` drives one of them, guided by coverage; ``test_fuzz.py`` all of them.
"""
