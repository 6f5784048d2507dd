from tests.retrieve.conftest import inputs, out

__all__ = ["inputs", "out"]
