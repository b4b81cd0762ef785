"""Alembic's entry: runs the migrations on the connection that `database.py` hands over, in its transaction."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    transactional_ddl=True,  # SQLite has it too: a creation that is cut off leaves nothing behind
)
with context.begin_transaction():
    context.run_migrations()
