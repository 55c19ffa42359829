"""Campaigns of faults: processes and networks fail while people speak, and every word is compared."""
