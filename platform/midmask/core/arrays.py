"""NumPy array types, one meaning each. Shapes are given by the letters at the end of a variable's name (`batch`)."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
"""Vectors and scores as they are stored."""

Doubles = NDArray[np.float64]
"""For statistics and exact sums."""

Ints = NDArray[np.int64]
"""Row numbers, offsets and keys."""

Ints32 = NDArray[np.int32]
"""Token ids and lengths as they are stored."""
