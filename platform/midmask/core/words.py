"""Times, sizes and absent values in words: short forms for logs and tables, a longer one for sentences."""

import math

MISSING = "—"
"""A cell of a table that has no value."""

NOT_KNOWN = "not known"


def number_cell(value: float | None, form: str) -> str:
    """The value in this format; `MISSING` for None."""
    return MISSING if value is None else format(value, form)


def clock(seconds: float) -> str:
    """`1h02m`, `3m07s`, `12s`."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 60}m{whole % 60:02d}s" if whole >= 60 else f"{whole}s"


def duration(seconds: float) -> str:
    """A time in a sentence: `12 s`, `3 min 7 s`, `42 min`, `1 h 12 min`, `26 h`, `3 days 4 h`."""
    if not math.isfinite(seconds):
        return NOT_KNOWN
    if seconds <= 0.5:  # which rounds to 0
        return "under 1 s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 600:
        return _two(whole, 60, "min", "s")
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 600:
        return _two(minutes, 60, "h", "min")
    hours = round(seconds / 3600)
    return f"{hours} h" if hours < 48 else _two(hours, 24, "days", "h")


def _two(count: int, size: int, large: str, small: str) -> str:
    rest = f" {count % size} {small}" if count % size else ""
    return f"{count // size} {large}{rest}"


def gib(size: float) -> str:
    """Bytes of memory and disks: `12 MiB`, `3.4 GiB`."""
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 / 10 else f"{size / 2**20:,.1f} MiB"


def size(number: float) -> str:
    """Bytes of any magnitude: `512 B`, `1.5 kB`, `63 kB`."""
    if not math.isfinite(number):
        return NOT_KNOWN
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 10 else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"
