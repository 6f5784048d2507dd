"""Queries, spans and term weights that are made from a collection, for training, for judging and for objectives.

The queries step makes a collection without labels one with train, dev and test queries:

config                 the table of sources; which queries are made, how many, and which of them are kept
collection             the collection as it was and as it will be searched; splits by document
sources                what a source is; which sources train and which judge; the queries of all sources
source_classes         titles, sentences, keyphrases, queries of a file, queries that a model writes
query_model            a language model that writes queries: its sampling, and the step that trains one
selection              which queries are kept, and why others are not
step                   the step, with a page of what it made

What objectives read besides the tokens of passages; each is an artifact of its own, made shard by shard from corpus
and tokens, found again by fingerprint:

pseudo_queries         a few queries for every passage
document_spans         documents cut into spans
terms                  weights of terms, and the word counts that they come from
given                  queries from a file
"""
