"""The consensus chain."""
