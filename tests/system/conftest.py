from tests.support.training.fixtures import corpus, pseudo_queries, spans, tokens

__all__ = ["corpus", "pseudo_queries", "spans", "tokens"]
