"""Cases from public incident reports and protocol edge cases, with expected results.

Each file is about one idea. Its table has a row a case: what was recorded or run, the command, and what it says.
``recorded``: how recorded traffic is written down, ingested and judged here.
"""
