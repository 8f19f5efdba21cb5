"""Terminal output that commands share."""
