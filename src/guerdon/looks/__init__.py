"""Verified work, pure: what members commit to, which rows a round names, and how rows travel to the auditor."""

from typing import TYPE_CHECKING

from guerdon._lazy import loader

if TYPE_CHECKING:
    from guerdon.looks.commitment import Commitment, new_secret
    from guerdon.looks.digests import Blinding, DigestError, DigestKey, check_digests, distinct_rows, shared_rows
    from guerdon.looks.encoding import decode_row, encode_row
    from guerdon.looks.naming import Deck, Seeds, Used, member_seeds, named_rows, new_number, rows_used
    from guerdon.looks.opening import Committed, Opening, OpeningError, RootChange, check, check_growth, committed_in
    from guerdon.looks.rows import Table, read_rows, stacked
    from guerdon.looks.sealing import LookOf, SealError, seal, sealed_hash, unseal
    from guerdon.looks.secret import make_secret, read_secret

_NAMES = {
    "commitment": ("Commitment", "new_secret"),
    "digests": ("Blinding", "DigestError", "DigestKey", "check_digests", "distinct_rows", "shared_rows"),
    "encoding": ("decode_row", "encode_row"),
    "naming": ("Deck", "Seeds", "Used", "member_seeds", "named_rows", "new_number", "rows_used"),
    "opening": ("Committed", "Opening", "OpeningError", "RootChange", "check", "check_growth", "committed_in"),
    "rows": ("Table", "read_rows", "stacked"),
    "sealing": ("LookOf", "SealError", "seal", "sealed_hash", "unseal"),
    "secret": ("make_secret", "read_secret"),
}

__all__ = [
    "Blinding",
    "Commitment",
    "Committed",
    "Deck",
    "DigestError",
    "DigestKey",
    "LookOf",
    "Opening",
    "OpeningError",
    "RootChange",
    "SealError",
    "Seeds",
    "Table",
    "Used",
    "check",
    "check_digests",
    "check_growth",
    "committed_in",
    "decode_row",
    "distinct_rows",
    "encode_row",
    "make_secret",
    "member_seeds",
    "named_rows",
    "new_number",
    "new_secret",
    "read_rows",
    "read_secret",
    "rows_used",
    "seal",
    "sealed_hash",
    "shared_rows",
    "stacked",
    "unseal",
]

# Digests and seals need cryptography, which the extra `ledger` has; a member that commits needs NumPy alone.
__getattr__ = loader(__name__, {name: module for module, names in _NAMES.items() for name in names}, "ledger")
