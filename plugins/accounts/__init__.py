"""The plug-in of accounts: API keys as records of a database, how much audio each has used, and jobs."""
