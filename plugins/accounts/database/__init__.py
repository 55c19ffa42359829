"""What the service keeps over a restart: tables in SQLite, or in PostgreSQL."""
