"""What SQLAlchemy compiled for one SQLite file serves the next: tests have many files, and the same statements."""

from typing import Any

from sqlalchemy import Engine
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

COMPILED: LRUCache[Any, Any] = LRUCache(2000)  # the statements of all tests, several times


def share() -> None:
    """Let all engines of SQLite in this process share their compiled statements.

    SQLAlchemy keeps them by engine and by dialect object. That is right for a program with one ledger. It compiles
    the same statements for each of some thousand ledgers here: a tenth of the processor time of their tests.
    """
    made, dialect = Engine.__init__, SQLiteDialect_pysqlite

    def init(self: Engine, *arguments: Any, **options: Any) -> None:
        made(self, *arguments, **options)
        if type(self.dialect) is dialect:
            self._compiled_cache = COMPILED

    Engine.__init__ = init
    dialect.__eq__ = lambda self, other: type(self) is type(other)
    dialect.__hash__ = lambda self: hash(type(self))
