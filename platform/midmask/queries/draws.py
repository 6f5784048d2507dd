"""Numbers that sources draw with: functions of seed, passage and purpose, so never of batches or of order."""

from midmask.randomness.texts import hash64


def draw(seed: int, *names: str | int) -> int:
    """64 random bits for these names (a purpose, a passage's id, a position, …)."""
    return int(hash64(["\0".join(map(str, names))], f"queries {seed}")[0])


def draw_order(seed: int, count: int, *names: str | int) -> list[int]:
    """0 … count - 1 in a random order."""
    return sorted(range(count), key=lambda number: (draw(seed, *names, number), number))
