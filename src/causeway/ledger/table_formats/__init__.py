"""Ledgers as tables of Delta Lake and Apache Iceberg: export, and import.

A folder, a prefix of an object store or a namespace of a catalog has one table for each table of the ledger. Both
formats are written and read in process, without Java, by packages that ``causeway[tables]`` installs.
"""
