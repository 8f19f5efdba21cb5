"""HTTP layer shared by all servers: access control, connection limits, bodies, client."""
