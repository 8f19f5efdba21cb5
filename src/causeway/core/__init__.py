"""Ground floor: identifiers, the queue algebra, messages, the ledger's vocabulary, errors."""
