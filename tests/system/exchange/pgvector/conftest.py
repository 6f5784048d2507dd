from tests.support.retrieve.fixtures import inputs

__all__ = ["inputs"]
