"""The database behind a ledger: SQLite in a file or PostgreSQL by URL, one writer at a time, readers on a snapshot."""

import os
import sqlite3
import time
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import URL, Connection, Engine, Select, event, func, select, text
from sqlalchemy.exc import ArgumentError, OperationalError

from guerdon.ledger.books import tables
from guerdon.ledger.books.errors import RefusedError, UnavailableError, translate_errors

OLDEST_SQLITE = (3, 37)  # the first with STRICT tables
NO_LEDGER = "there is no ledger at {}; a run that records rounds, or `guerdon ledger enrol`, makes one"
FORMER_TABLE = "settlements"  # of every ledger that a development version made, and of no other
MIGRATIONS = Path(__file__).parent / "migrations"
# What a writer, and the program that creates a ledger, wait for on PostgreSQL; the number is any, the same for all.
LOCK = select(tables.ledger.c.head).with_for_update()
CREATION_LOCK = select(func.pg_advisory_xact_lock(0x677565726))


FILES = "GUERDON_FILES"  # the folder for files beside a ledger that is no file


class Database:
    """One place where a ledger is kept, and the ways to read from it and write to it."""

    def __init__(self, where: str | os.PathLike[str], *, read_only: bool, patience: float) -> None:
        self.url = parse_url(where)
        shown = self.url.set(query={}).render_as_string(hide_password=True)  # a query may hold a password too
        self.where = self.url.database if self.is_sqlite else shown
        self.read_only = read_only
        if self.is_sqlite:
            self._check_file()
        make = _sqlite if self.is_sqlite else _postgresql
        self.engine = make(self.url, read_only, patience)

    @property
    def is_sqlite(self) -> bool:
        """Whether this is an SQLite file."""
        return self.url.get_backend_name() == "sqlite"

    @property
    def files(self) -> Path:
        """The folder for files beside the ledger."""
        if self.is_sqlite:
            path = Path(str(self.url.database))
            return path.with_name(path.name + ".files")
        found = os.environ.get(FILES)
        if not found:
            raise RefusedError(
                f"the variable {FILES} must name a folder for files beside the ledger, as {self.where} is no file; "
                "only the operator should be able to write there"
            )
        return Path(found)

    @contextmanager
    def reading(self) -> Generator[Connection]:
        """Give a connection that sees one unchanging state of the ledger."""
        with translate_errors(str(self.where)), self.engine.connect() as connection:
            if not self.is_sqlite:  # whose readers see one state anyway
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                yield connection

    @contextmanager
    def writing(self, lock: Select[Any] = LOCK) -> Generator[Connection]:
        """Give the only connection that writes; all of it is committed at the end, or nothing."""
        if self.read_only:
            raise UnavailableError(f"ledger {self.where}: it is open for reading only; nothing was written")
        engine = self.engine.execution_options(guerdon_writes=True)
        with translate_errors(str(self.where)), engine.begin() as connection:
            if not self.is_sqlite:
                connection.execute(lock)
            yield connection

    def creating(self) -> AbstractContextManager[Connection]:
        """Give the only connection that may create or alter tables."""
        return self.writing(CREATION_LOCK)

    def revision(self, connection: Connection) -> str | None:
        """Return the version of the ledger's tables, or None where the database is still empty."""
        names = sa.inspect(connection).get_table_names()
        if FORMER_TABLE in names:
            raise RefusedError(
                f"the ledger {self.where} was made by a development version before 0.1 and cannot be read; start a new "
                "one in another place"
            )
        if "alembic_version" not in names:
            if names:
                others = ", ".join(sorted(names)[:5])
                raise RefusedError(f"{self.where} holds other tables ({others}) and is not a ledger")
            return None
        return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()

    def check_revision(self, connection: Connection) -> bool:
        """Tell whether there is a ledger; raise if it is one that this version cannot read."""
        revision = self.revision(connection)
        if revision not in (None, tables.REVISION):
            raise RefusedError(
                f"the ledger {self.where} has tables of version {revision}, this program needs {tables.REVISION}; "
                "use the program that wrote it, or `guerdon ledger upgrade` after a backup"
            )
        return revision is not None

    def upgrade(self, connection: Connection, version: str = "head") -> None:
        """Create the tables, or bring them to a version (the newest), within the caller's transaction."""
        from alembic import command
        from alembic.config import Config

        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        config.attributes["connection"] = connection
        command.upgrade(config, version)

    def _check_file(self) -> None:
        path = Path(str(self.url.database))
        if self.read_only and not path.is_file():
            raise UnavailableError(NO_LEDGER.format(path))
        if path.is_dir() or not path.parent.is_dir():
            raise UnavailableError(f"a ledger cannot be kept at {path}: it must be a file in a folder that exists")
        try:
            if not self.read_only:  # only the owner can read a new file: what somebody earns is nobody else's business
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        except OSError as error:
            raise UnavailableError(
                f"ledger {path}: the file cannot be opened for writing ({error.strerror})"
            ) from error
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise UnavailableError(f"SQLite must be at least 3.37, got {sqlite3.sqlite_version}; update Python")


def parse_url(where: str | os.PathLike[str]) -> URL:
    """Return where the ledger is kept: a path, sqlite:///path, or postgresql://user@host/name."""
    if not isinstance(where, str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"a ledger must be given by a path or an address, as text, got {where!r}")
    if "://" not in str(where):
        return URL.create("sqlite", database=str(where))
    try:
        url = sa.make_url(str(where))
        backend = url.get_backend_name()
    except (ArgumentError, ValueError):
        raise ValueError("the address of a ledger cannot be read; write postgresql://user@host:5432/name") from None
    if backend == "sqlite" and url.database:
        return URL.create("sqlite", database=url.database)
    if backend in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    raise ValueError(f"a ledger is kept in an SQLite file or in PostgreSQL, got {url.drivername!r}")


def _sqlite(url: URL, read_only: bool, patience: float) -> Engine:
    path = Path(str(url.database)).resolve()  # the companions of the file lie beside it, not beside a link to it
    # Not the pool that SQLAlchemy takes for a memory database, which closes connections that other threads use. A
    # reader opens the file anew each time: whether somebody writes to it may have changed.
    pool = sa.NullPool if read_only else sa.QueuePool
    engine = sa.create_engine("sqlite://", creator=lambda: _open_file(path, read_only, patience), poolclass=pool)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A writer takes its lock at once, so that what it has read stays true until it commits.
        writes = connection.get_execution_options().get("guerdon_writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    del begin
    return engine


def _use_wal(connection: sqlite3.Connection, patience: float) -> None:
    """Switch a new file to a write-ahead log: the one statement that does not wait for another writer by itself."""
    end = time.monotonic() + patience
    while connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.01)


def _open_file(path: Path, read_only: bool, patience: float) -> sqlite3.Connection:
    mode = "mode=rwc"
    if read_only:
        # A reader of a WAL file needs its companions, or must know that nobody writes: in a folder where it may not
        # create them and they are not there, nobody does.
        quiet = not Path(f"{path}-wal").exists() and not os.access(path.parent, os.W_OK)
        mode = "mode=ro&immutable=1" if quiet else "mode=ro"
    connection = sqlite3.connect(
        f"{path.as_uri()}?{mode}", uri=True, timeout=patience, isolation_level=None, check_same_thread=False
    )
    try:
        _prepare(connection, read_only, patience)
    except BaseException:
        connection.close()  # or it would stay open until the garbage collector finds it
        raise
    return connection


def _prepare(connection: sqlite3.Connection, read_only: bool, patience: float) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA recursive_triggers = ON")  # or INSERT OR REPLACE would delete past them
    connection.execute(f"PRAGMA query_only = {'ON' if read_only else 'OFF'}")
    if not read_only:
        # FULL: what was committed survives a loss of power too.
        connection.execute("PRAGMA synchronous = FULL")
        _use_wal(connection, patience)


def _postgresql(url: URL, read_only: bool, patience: float) -> Engine:
    settings = f"-c lock_timeout={max(1, int(1000 * patience))} -c timezone=UTC"
    if read_only:
        settings += " -c default_transaction_read_only=on"
    own = url.query.get("options", "")
    settings = f"{own if isinstance(own, str) else ' '.join(own)} {settings}".strip()
    url = url.difference_update_query(["options"])
    try:
        return sa.create_engine(url, connect_args={"options": settings, "connect_timeout": 10})
    except (ImportError, OperationalError) as error:
        raise UnavailableError(f"PostgreSQL cannot be used: {error}") from error
