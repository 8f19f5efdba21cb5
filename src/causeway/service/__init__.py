"""A lake behind HTTP, and the processes that relay messages between lakes."""
