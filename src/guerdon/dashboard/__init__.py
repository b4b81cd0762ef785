"""The dashboard: see who was asked, who worked and who was paid. It reads the ledger, and never writes to it."""
