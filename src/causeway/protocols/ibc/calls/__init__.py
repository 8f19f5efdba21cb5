"""The calls of the protocol, one file each (IBC reference 3.1 to 3.4, X-1, X-2).

Each has an ordered table of checks (refusal, section of the reference, condition) and one effect. The same tables serve
bulk submissions, runs of entries under one proof, and the single calls of transactions from outside.
"""
