from tests.support.retrieve.fixtures import inputs, out

__all__ = ["inputs", "out"]
