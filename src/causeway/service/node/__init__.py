"""Node that serves a lake and makes its blocks."""
