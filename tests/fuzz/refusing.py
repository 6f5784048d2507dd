"""What tests say of input that is refused."""

from typing import Any

import pytest

from midmask.errors import LONGEST, UserError


def refused(read: Any, *said: str) -> str:
    """The one line that a call ends in."""
    with pytest.raises(UserError) as error:
        result = read()
        if hasattr(result, "__next__"):
            list(result)
    line = str(error.value)
    assert all(part in line for part in said), line
    assert len(line) <= LONGEST + 100 and line.encode()
    return line
