from tests.support.training.fixtures import corpus, pseudo_queries, spans, tokens, vectors

__all__ = ["corpus", "pseudo_queries", "spans", "tokens", "vectors"]
