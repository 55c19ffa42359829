"""Inserts that meet a row which is there already: SQLite and PostgreSQL write them alike, in dialects of SQLAlchemy."""

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite


def insert_into(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    """An insert that can say what happens on a conflict, for the database of this connection."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)
