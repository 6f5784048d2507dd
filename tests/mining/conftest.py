from tests.support.retrieve.collection import inputs, out

__all__ = ["inputs", "out"]
