"""Lakes and ledgers as Spark DataFrames."""
