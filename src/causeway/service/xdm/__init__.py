"""Lakes of domains behind HTTP, and the relay between them (XDM reference 3.10, X-5)."""
