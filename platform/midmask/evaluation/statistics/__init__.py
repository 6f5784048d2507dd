"""The one home of statistics over queries and seeds: what sweeps, benchmarks, tables and the leaderboard test with.

intervals     variances of queries and of seeds, standard errors, confidence intervals, smallest detectable differences
pairing       two systems query by query: wins, ties, losses
significance  systems against a baseline or against each other: paired tests, corrections, the result in words
ranks         ties, ranks that the tests allow, ranks over collections, the Pareto front
"""
