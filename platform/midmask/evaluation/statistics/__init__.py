"""The one home of statistics over queries and seeds: what sweeps, benchmarks, tables and the leaderboard test with."""
