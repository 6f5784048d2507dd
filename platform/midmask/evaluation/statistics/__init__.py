"""The one home of statistics over queries and seeds: what sweeps, benchmarks, tables and the leaderboard test with.

p_values      paired tests over queries, and corrections for a family of them
intervals     from independent variances to a standard error: confidence interval, p, smallest detectable difference
seeds         values of a system by seed and query, and the variance that seeds add to that of queries
significance  systems against a baseline or against each other: what a table, a sweep or a page prints of a difference
"""
