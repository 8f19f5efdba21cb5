"""The audit of a ledger in plain sets and dicts: what each check says, of rows that are dicts.

``ledger``: rows, messages, windows, promises. ``checks``: one function a check. ``answering``: answers over lanes of
their own. ``stated``: checks of what chains state of themselves.
"""
