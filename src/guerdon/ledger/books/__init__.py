"""What is kept: tables, the journal that appends records, the chain of hashes, and whole micro-units."""
