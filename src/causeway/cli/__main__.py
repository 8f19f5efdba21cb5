"""``python -m causeway.cli``."""

from causeway.cli import main

main()
