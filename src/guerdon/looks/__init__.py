"""Verified work: a few rounds are computed again, and members are paid for work and for nothing else (THEORY §14)."""
