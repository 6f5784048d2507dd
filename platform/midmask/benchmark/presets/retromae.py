"""RetroMAE's main results and its table of factors (Xiao et al., EMNLP 2022)."""

from midmask.benchmark.design import Benchmark, Setting
from midmask.benchmark.presets.given import TOY_GIVEN, Given, conditions, sizes

FACTORS = (
    "decoding=basic",
    "decoding=basic,decoder_layers=2",
    "decoding=basic,decoder_layers=3",
    "decoder_mask_ratio=0.15",
    "decoder_mask_ratio=0.9",
    "decoding=basic,decoder_mask_ratio=0.15",
    "decoding=basic,decoder_mask_ratio=0.7",
    "decoding=basic,decoder_mask_ratio=0.9",
    "encoder_mask_ratio=0.15",
    "encoder_mask_ratio=0.9",
)
"""What its Table 6 changes, one row each; the defaults are RetroMAE itself."""


def retromae(given: Given = TOY_GIVEN) -> Benchmark:
    """BERT, SEED, Condenser, coCondenser and RetroMAE as DPR and ANCE are fine-tuned, RetroMAE distilled too; and each
    factor under DPR's protocol. NQ is `--corpus nq:FOLDER`, alone or after MS MARCO's --corpus, by its answers'
    strings; BEIR's sets are `--zero-shot beir18:FOLDER`.
    """
    variants = tuple(f"retromae[{fields}]" for fields in FACTORS)
    systems = ("none", "seed", "condenser", "cocondenser", "retromae")
    settings = {name: Setting(protocols={"dense": name}) for name in ("dpr", "ance", "retromae_distil")}
    return Benchmark(
        name="retromae",
        title="RetroMAE: main results and factors of Xiao et al. (EMNLP 2022)",
        corpus=given.corpus,
        systems=("bm25", *systems, *variants),
        collections={"corpus": (), **given.elsewhere("wiki")},
        only={"ance": systems, "retromae_distil": ("retromae",)},
        settings=settings,
        measures=("nq",) if given.corpus.startswith("nq:") else ("retromae",),
        baseline="none",
        notes=conditions(given, "Xiao et al. 2022"),
        **sizes(given),
    )
