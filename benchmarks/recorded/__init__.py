"""The whole command on recorded traffic: hundreds of small ticks, from the command line to the summary."""
