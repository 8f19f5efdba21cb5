"""``python -m causeway``: the command line."""

from causeway.cli import main

main()
