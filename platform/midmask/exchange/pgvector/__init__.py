"""A collection's vectors in a PostgreSQL server with the extension pgvector: `midmask upload` and `Run.upload`."""
