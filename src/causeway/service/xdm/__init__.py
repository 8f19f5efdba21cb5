"""Lakes of domains behind HTTP, and the relay process between two of them (XDM reference 3.10, X-5)."""
