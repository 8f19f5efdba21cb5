"""A lake behind HTTP, and the processes that carry messages between lakes."""
