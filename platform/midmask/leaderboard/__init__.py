"""Tracked runs as what the pages show, as plain data. Pages, tables and tests share it; nothing is drawn.

snapshot       the runs of a store as they were known at a time; a look asks only for what changed
snapshot_file  a snapshot as a Parquet file beside the store
watch          keeps a snapshot fresh in a thread, so that no page waits
rows           one row per evaluated run, corpus and split; what has not finished, apart
entries        the seeds of a system as one entry; gains per hour
per_query      the per-query values that runs keep
marks          which entries differ significantly
board          chosen entries × (corpus, split, measure) as cells, with costs; what is best, what comes first
cells          how cells read; html, export: the board as HTML, CSV and Markdown
surfaces, sweep_result, sweep_axes, queries, passages, training, embeddings, lineage: what the other pages show
"""
