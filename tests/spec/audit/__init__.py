"""The audit of a ledger in plain sets and dicts: what each check says, of rows that are dicts.

``ledger``: rows, messages, windows, promises. ``checks``: one function a check. ``answering``: answers over lanes of
their own. ``value``: what is paid out of messages, and what is abroad. ``stated``: checks of what chains state of
themselves.
"""
