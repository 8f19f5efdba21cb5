"""Keys and signed messages of users, relayers and validators."""
