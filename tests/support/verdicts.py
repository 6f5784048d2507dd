"""A verdict as a contest writes it: twelve systems, half of them given up early, and texts that want to be markup."""

from dataclasses import replace

from midmask.choice.verdict import Calibration, QueryCounts, Recommendation, SystemEstimate, Verdict

HOSTILE = "<script>alert('x')</script>"
HOSTILE_QUERY = '"><img src=x onerror=alert(1)> reset | `rm -rf` **bold** \u202eright to left'
HOSTILE_PASSAGE = (
    "<iframe src='https://example.com'></iframe></p></blockquote><style>*{display:none}</style> Reset the pump & "
    "wait.\n\n# No heading\n\n| no | table |\n```\nno fence\n\x00\ud800 [no link](https://example.com) &lt;b&gt;"
)
ROWS = (
    ("retromae", "dense", 0.4612, 0.0431, 0.0242, 0.0620, 4_330, 1536, True),
    ("dupmae", "384+384", 0.4574, 0.0393, 0.0171, 0.0615, 7_980, 3072, True),
    ("lexmae", "splade", 0.4498, 0.0317, 0.0079, 0.0555, 9_420, 842.5, True),
    ("none", "dense", 0.4181, 0.0, 0.0, 0.0, 1_270, 1536, True),
    ("mlm", "dense", 0.4167, -0.0014, -0.0198, 0.0170, 3_050, 1536, True),
    ("bm25", "bm25", 0.3925, -0.0256, -0.0504, -0.0008, 0.31, 0, True),
    ("cotmae", "dense", 0.4390, 0.0209, -0.0240, 0.0658, 3_900, 1536, False),
    ("condenser", "dense", 0.4301, 0.0120, -0.0331, 0.0571, 3_420, 1536, False),
    ("simcse", "dense", 0.4220, 0.0039, -0.0402, 0.0480, 1_940, 1536, False),
    ("none", "splade", 0.4102, -0.0079, -0.0530, 0.0372, 2_250, 790, False),
    ("ict", "dense", 0.4006, -0.0175, -0.0633, 0.0283, 2_010, 1536, False),
    (HOSTILE, "dense", 0.3810, -0.0371, -0.0880, 0.0138, 5_200, 1536, False),
)
"""System, representation, estimate, gain with its ends, seconds, bytes per passage, whether it is a finalist."""


def systems() -> tuple[SystemEstimate, ...]:
    """The best first; estimates have the width of their gains, and the baseline's is 0.018 to each side. Gains on made
    queries are half as large again as those that are expected.
    """
    found = []
    for rank, (system, view, estimate, gain, low, high, seconds, size, finalist) in enumerate(ROWS, 1):
        half = (high - low) / 2 or 0.018
        model = "" if system == "bm25" else f"store/finetune/{rank:04d}"
        ends = (estimate, estimate - half, estimate + half, gain, low, high)
        training = {"bm25": "none", "none": "fine-tuning"}.get(system, "middle training")
        made = dict(zip(("made_gain", "made_low", "made_high"), (1.5 * gain, 1.5 * low, 1.5 * high), strict=True))
        about = {"joined": False, "training": training}
        found.append(SystemEstimate(system, view, rank, *ends, seconds, size, model, finalist, **made, **about))
    return tuple(found)


def verdict() -> Verdict:
    """RetroMAE is recommended over no middle training."""
    baseline = "none · dense"
    why = "It has the largest gain, and the two that come close compute for longer."
    place = "verdicts/handbook"
    return Verdict(
        corpus="docs:handbook", passages=18_432, systems=systems(), baseline=baseline, measure="nDCG@10", folder=place,
        model=f"{place}/model", collection=f"{place}/collection", budget_seconds=43_200, spent_seconds=41_150,
        queries=QueryCounts({"titles": 1_104, "sentences": 987, f"file:{HOSTILE}": 412}, 4_180, 2_503, 1_502, 375, 626),
        recommendation=Recommendation("retromae", "dense", True, why),
        calibration=Calibration(("squad", "cranfield", "pydocs"), 0.71, 0.88, 0.9, "docs/results/choose.md"),
        command="midmask choose docs:handbook --budget 12h --set queries.seed=0",
        not_tried={"cotmote · dense": "its experts need twice the memory", f"simlm {HOSTILE}": "the budget was spent"},
        limits=(
            "Queries were made from the passages; people ask other things, and in other words.",
            "One seed per training: what another seed would change is in the intervals only as the calibration saw it.",
            f"Documents in other languages than English were not looked at apart. {HOSTILE}",
            HOSTILE_QUERY,
            HOSTILE_PASSAGE,
        ),
    )  # fmt: skip


def undecided() -> Verdict:
    """The same contest with small gains: nothing differs from the baseline, which is the cheapest."""
    one = verdict()
    ends = {"": 0.0, "_low": -0.02, "_high": 0.02}

    def smaller(each: SystemEstimate) -> SystemEstimate:
        gains = {f"{kind}{end}": 0.2 * each.gain + way for kind in ("gain", "made") for end, way in ends.items()}
        gains["made_gain"] = gains.pop("made")
        return each if each.label in (one.baseline, "bm25") else replace(each, **gains)

    taken = Recommendation("none", "dense", False, "No middle training gains more than the interval is wide.")
    return replace(one, systems=tuple(map(smaller, one.systems)), recommendation=taken)
