"""From documents without labelled queries to a verdict: which middle training, what it gains, how sure that is."""
