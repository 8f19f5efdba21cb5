"""Values of the messenger of XDM that only tests read and write one by one."""
