"""Decoders and verifiers under bytes that nobody meant for them.

Each family's module has ``TARGETS``: by name, a function that takes bytes and lets no exception pass but the ones that are
a mistake, and the seeds to start from. ``run.py`` drives one of them under coverage guidance; ``test_fuzz.py`` all, for a while.
"""
