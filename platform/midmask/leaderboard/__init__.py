"""Tracked runs as what the pages show, as plain data. Pages, tables and tests share it; nothing is drawn.

store_view   the runs of a store as they were known at a time
rows         one row per evaluated run, corpus and split; what has not finished, apart; sweeps; per-query values
entries      the seeds of a system as one entry; which entries differ significantly
board        chosen entries × (corpus, split, measure) as a table, with costs; what is best, what comes first
selection    which systems a user means
comparison   systems side by side on the same queries, and as text; queries: what lies behind each query
artifacts    what a number was made of, as far as it can be reached
"""
