"""What the servers of lakes and of pages share: who is let in, connections, and the sockets that they come over."""
