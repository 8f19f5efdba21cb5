"""What all protocols share."""
