"""How the tables are defined: a hash of every definition, to be compared with the one that the ledger recorded.

SQLite keeps the text of each definition. PostgreSQL keeps what it understood and writes it as text when asked, not in
the same way in every version: spaces, quoted names and (in views) the table of a column are left out.
"""

import hashlib
import re

from sqlalchemy import Connection, text

_SQLITE = "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_stat%'"
# `own` and `tables`: what is in the ledger's schema, and what of it is neither an index nor TOAST.
_OWN = """WITH own AS (SELECT * FROM pg_class WHERE relnamespace = current_schema()::regnamespace),
tables AS (SELECT * FROM own WHERE relkind NOT IN ('i', 'I', 't')) """
_POSTGRESQL = [
    """SELECT 'relation', relname, relkind, relpersistence,
    CASE WHEN relkind IN ('v', 'm') THEN pg_get_viewdef(oid) END,
    EXISTS (SELECT FROM pg_inherits WHERE oid IN (inhparent, inhrelid)) FROM tables""",
    """SELECT 'column', relname, attnum, attname, format_type(atttypid, atttypmod), attnotnull, attidentity,
    attgenerated, pg_get_expr(adbin, adrelid) FROM pg_attribute JOIN tables ON tables.oid = attrelid
    LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum WHERE attnum > 0 AND NOT attisdropped""",
    """SELECT 'constraint', relname, conname, convalidated, pg_get_constraintdef(pg_constraint.oid)
    FROM pg_constraint JOIN tables ON tables.oid = conrelid WHERE contype <> 'n'""",
    """SELECT 'index', relname, indisvalid, pg_get_indexdef(indexrelid, 0, true)
    FROM pg_index JOIN tables ON tables.oid = indrelid""",
    """SELECT 'trigger', relname, tgenabled, pg_get_triggerdef(pg_trigger.oid, true), tgfoid::regprocedure, lanname,
    prosecdef, proconfig, encode(convert_to(prosrc, 'UTF8'), 'hex')
    FROM pg_trigger JOIN tables ON tables.oid = tgrelid JOIN pg_proc ON pg_proc.oid = tgfoid
    JOIN pg_language ON pg_language.oid = prolang WHERE NOT tgisinternal""",
    """SELECT 'not checked', relname, conname FROM pg_trigger JOIN tables ON tables.oid = tgrelid
    JOIN pg_constraint ON pg_constraint.oid = tgconstraint WHERE tgisinternal AND tgenabled <> 'O'""",
]
# What makes PostgreSQL do something other than it is told, or hide rows: no ledger has any.
_INTERFERING = """SELECT 'rule ' || rulename || ' on ' || relname FROM pg_rewrite JOIN own ON own.oid = ev_class
WHERE NOT (relkind IN ('v', 'm') AND rulename = '_RETURN')
UNION ALL SELECT 'policy ' || polname || ' on ' || relname FROM pg_policy JOIN own ON own.oid = polrelid
UNION ALL SELECT 'row security on ' || relname FROM own WHERE relrowsecurity OR relforcerowsecurity ORDER BY 1"""
_VARYING = re.compile(r"""('(?:[^']|'')*')|[\s";]+|\bentries\.""")  # text in quotes is kept


def schema_digest(connection: Connection) -> bytes:
    """Return a hash of how everything in the ledger's schema is defined."""
    if connection.dialect.name == "sqlite":
        rows = [[str(part) for part in row] for row in connection.execute(text(_SQLITE))]
    else:
        found = (row for query in _POSTGRESQL for row in connection.execute(text(_OWN + query)))
        rows = [[normalised(str(part)) for part in row] for row in found]
    return hashlib.sha256(repr(sorted(rows)).encode()).digest()


def normalised(definition: str) -> str:
    """Return a definition without what PostgreSQL writes differently from version to version.

    >>> normalised("CHECK ((status = 'not  paid'::text))")
    "CHECK((status='not  paid'::text))"
    >>> normalised(" SELECT entries.line\\n FROM entries;") == normalised(" SELECT line\\n FROM entries;")
    True
    """
    return _VARYING.sub(lambda match: match[1] or "", definition)


def interfering(connection: Connection) -> list[str]:
    """Return the rules and policies that PostgreSQL would follow when the ledger is read or written."""
    return [] if connection.dialect.name == "sqlite" else list(connection.execute(text(_OWN + _INTERFERING)).scalars())
