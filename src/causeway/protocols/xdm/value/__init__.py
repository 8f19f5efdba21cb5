"""Transfers, fees and supply."""
