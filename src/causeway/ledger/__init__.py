"""The ledger as a stored format: what happened to messages between chains, whoever recorded it.

``schema``: the tables. ``order``: in which bucket a row lies, and where in it. ``limbs``: amounts. ``codes``: names as
numbers for a pass. Nothing here knows where they are stored or who reads them.
"""
