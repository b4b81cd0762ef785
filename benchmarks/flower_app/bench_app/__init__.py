"""Rounds with and without pay, timed."""
