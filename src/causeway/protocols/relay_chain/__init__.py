"""The relay chain that egress queues and HRMP share."""
