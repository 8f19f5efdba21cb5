"""Ledgers as tables of Delta Lake and Apache Iceberg: export, and import.

A folder has one table for each table of the ledger. Both formats are written and read in process, without Java, by
packages that ``causeway[tables]`` installs.
"""
