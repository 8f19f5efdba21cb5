"""Networks in memory, for tests of programs: ``causeway.Network``, what it hands out, and the pytest plugin."""
