"""Plain forms of what the library does by columns, and builders of stores that only tests need."""
