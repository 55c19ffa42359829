"""Rules about text without a state of the session: what is stable, shown, doubted, in which language."""
