"""The ledger as a stored format: what happened to messages between chains, whoever recorded it.

``schema``: the tables. Nothing here knows where they are stored or who reads them.
"""
