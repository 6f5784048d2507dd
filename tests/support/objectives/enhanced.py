"""RetroMAE's enhanced decoding in scalar arithmetic."""

import torch

from midmask.objectives.pretraining.retromae import DecodingConfig, RetroMAERows
from tests.support.objectives.reference import Reference, Vectors


def decode(
    config: DecodingConfig, reference: Reference, vector: torch.Tensor, drawn: RetroMAERows, row: int
) -> Vectors:
    length = int(drawn.decoder.lengths_B[row])
    context = [vector, *reference.embed(drawn.decoder.ids_BL[row, :length].tolist())[1:]]
    if config.decoding == "basic":
        for number in range(config.decoder_layers):
            everything = [[True] * length] * length
            context = reference.layer(reference.decoder_names(number), context, context, everything)
        return context
    if config.query_stream == "paper":
        queries = [vector + reference.position(i) for i in range(length)]
    else:
        queries = [reference.embed_vector(vector, i) for i in range(length)]
    visible = drawn.visible_BXL[row, :length, :length].tolist()
    return reference.layer(reference.decoder_names(0), queries, context, visible)
