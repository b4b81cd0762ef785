"""What the migrations do: make tables as `tables` has them, and forbid changes of what is recorded.

A version that alters a table of an earlier one must write out in its own file what the table was before: `tables` has
it only as it is now.
"""

from alembic import op

from guerdon.ledger.books.tables import metadata


def create_tables(*names: str) -> None:
    """Create tables that `tables` defines."""
    metadata.create_all(op.get_bind(), [metadata.tables[name] for name in names], checkfirst=False)


def on_sqlite() -> bool:
    """Return whether the database is SQLite, else it is PostgreSQL."""
    return op.get_bind().dialect.name == "sqlite"


def append_only(table: str) -> None:
    """Forbid every change of what is in a table."""
    forbid(table, *(("UPDATE", "DELETE") if on_sqlite() else ("UPDATE OR DELETE",)))


def forbid(table: str, *changes: str) -> None:
    """Refuse such changes of a table: against accidents; an attacker can drop a trigger, not mend the chain."""
    each_row, whole = (f"FOR EACH {what} EXECUTE FUNCTION guerdon_refuse()" for what in ("ROW", "STATEMENT"))
    if on_sqlite():
        each_row = f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
    for change in changes:
        op.execute(f"CREATE TRIGGER {table}_no_{change[:6].lower()} BEFORE {change} ON {table} {each_row}")
    if not on_sqlite():
        op.execute(f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} {whole}")
