"""Lakes of zones behind HTTP, and the relay process between two of them (IBC reference 3.5)."""
