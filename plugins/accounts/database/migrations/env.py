"""Run by Alembic: applies the migrations in the transaction of the connection that `schema.py` gives it."""

from alembic import context

from tutti_server.plugins.accounts.database.schema import VERSION_TABLE

# Alembic sets it while it runs this file. To import it does nothing.
if hasattr(context, "config"):
    context.configure(connection=context.config.attributes["connection"], version_table=VERSION_TABLE)
    context.run_migrations()
