"""Benchmarks by name: a preset makes one of what the command line gives."""

from collections.abc import Callable

from midmask.benchmark.design import Benchmark
from midmask.benchmark.presets.collection_axis import collections
from midmask.benchmark.presets.cotmote import cotmote
from midmask.benchmark.presets.demo import demo
from midmask.benchmark.presets.dupmae import dupmae
from midmask.benchmark.presets.given import Given as Given
from midmask.benchmark.presets.pretrained import pretrained
from midmask.benchmark.presets.retromae import retromae
from midmask.benchmark.presets.rom import rom
from midmask.benchmark.presets.sigir23 import sigir23
from midmask.registry import Registry

PRESETS: Registry[Callable[[Given], Benchmark]] = Registry(
    "preset",
    {
        "demo": demo,
        "sigir23": sigir23,
        "dupmae": dupmae,
        "retromae": retromae,
        "cotmote": cotmote,
        "rom": rom,
        "collections": collections,
        "pretrained": pretrained,
    },
)
