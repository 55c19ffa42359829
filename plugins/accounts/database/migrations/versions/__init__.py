"""Each version of the schema, and how it is made from the one before."""
