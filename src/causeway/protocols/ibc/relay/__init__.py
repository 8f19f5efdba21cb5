"""The relayers of zones."""
