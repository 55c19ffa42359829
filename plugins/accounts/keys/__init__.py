"""Customers: API keys as records of the database, what each may do, and how much audio each has used."""
