"""The only room that knows Spark: the session, the lake, the tick."""
