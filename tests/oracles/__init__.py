"""Plain counterparts of the library's column code, and store builders used only by tests."""
