"""What proves the ledger: everything recomputed, heads signed, reports signed by their members."""
