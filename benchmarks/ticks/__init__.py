"""Small ticks as a run has them, many in a row: what each costs when all that many share is divided among them."""
