"""Cross-domain messages with their responses: sent, proved, executed, answered, the response proved and settled."""
