"""The audit of a ledger in plain sets and dicts: what each check says, of rows that are dicts.

``ledger``: rows, messages, windows, promises. ``checks``: one function a check.
"""
