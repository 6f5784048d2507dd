"""The hash of a position in Python's own integers."""


def position_hash(key: int, purpose: int, draw: int, position: int) -> int:
    """32 bits, in Python's own integers: SplitMix64's finaliser on the key, MurmurHash3's on the position."""
    x = (key + ((purpose << 32) + draw) * 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    h = ((x >> 32) + position * 0x9E3779B9) % 2**32
    h = (h ^ (h >> 16)) * 0x85EBCA6B % 2**32
    h = (h ^ (h >> 13)) * 0xC2B2AE35 % 2**32
    return h ^ (h >> 16)
