"""What objectives read besides the tokens of passages: spans of documents, pseudo-queries, term weights.

Each is an artifact of its own, made shard by shard from corpus and tokens, found again by fingerprint.
"""
