"""Keys and signed messages of users and relayers."""
