"""Figures, selections, SQL and traces over ledgers, without a Spark session of their own."""
