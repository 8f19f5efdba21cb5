"""Situations out of public incident reports and of networks at the edge of a protocol's rules, with their answers.

Each file is about one idea. Its table has a row a case: what was recorded or run, the command, and what it says.
``recorded``: how recorded traffic is written down, ingested and judged here.
"""
