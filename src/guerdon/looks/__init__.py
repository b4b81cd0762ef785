"""Verified work, pure: what members commit to, which rows a round names, and how rows travel to the auditor."""
