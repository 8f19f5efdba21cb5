"""The ledger: the stored format of message traffic, independent of its recorder.

- ``schema``: the tables. ``row_order``: buckets and sort orders. ``encodings``: names and amounts as numbers.
- ``store``: commits and files. ``ingest``: recorded traffic. ``lake``: the derivation from a lake.
"""
