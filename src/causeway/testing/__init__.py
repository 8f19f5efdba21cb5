"""Networks in memory for tests of programs: ``causeway.Network`` and the pytest plugin."""
