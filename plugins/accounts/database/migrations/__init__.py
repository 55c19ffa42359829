"""The steps by which the schema of the database moves forward, for Alembic: one file of `versions` for each."""
