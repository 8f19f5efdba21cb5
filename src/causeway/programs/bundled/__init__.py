"""The programs that come with Causeway."""
