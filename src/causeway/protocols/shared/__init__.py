"""Code shared by all protocols."""
