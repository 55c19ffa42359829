"""What a call was like: who spoke when, for how long, and who interrupted whom."""
