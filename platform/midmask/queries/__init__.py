"""Queries that nobody asked, made from the passages of a collection, so that systems can be trained and compared
without labels.
"""
