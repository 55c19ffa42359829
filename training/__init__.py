"""The recipe of the embedded model."""
