"""The Condenser head in scalar arithmetic."""

import torch

from midmask.objectives.pretraining.encoder_mask import MaskedRows
from tests.support.objectives.reference import Reference, Vectors


class HeadReference(Reference):
    """BERT that keeps the states behind one layer, and a head of ordinary layers."""

    def early(self, tokens: list[int], layer: int) -> Vectors:
        shallow = HeadReference.__new__(HeadReference)
        shallow.__dict__ = {**self.__dict__, "layers": layer}
        return shallow.encode(tokens)

    def read(self, vector: torch.Tensor, early: Vectors, head_layers: int) -> Vectors:
        states = [vector, *early[1:]]
        for number in range(head_layers):
            names = {
                part: name.replace("decoder.", "head.layers.") for part, name in self.decoder_names(number).items()
            }
            states = self.layer(names, states, states, [[True] * len(states)] * len(states))
        return states

    def losses(self, rows: MaskedRows, skip_from: int, head_layers: int) -> dict[str, list[torch.Tensor]]:
        """-log p(label) of every target, by part, row by row."""
        width = rows.ids_BL.shape[1]
        found: dict[str, list[torch.Tensor]] = {"head_mlm": [], "late_mlm": []}
        for place, label in zip(rows.rows_R.tolist(), rows.labels_R.tolist(), strict=True):
            row, column = divmod(place, width)
            tokens = rows.ids_BL[row, : int(rows.lengths_B[row])].tolist()
            late, early = self.encode(tokens), self.early(tokens, skip_from)
            found["head_mlm"].append(self.surprise(self.read(late[0], early, head_layers)[column], label))
            found["late_mlm"].append(self.surprise(late[column], label))
        return found
