"""BERT and its losses, slow and obvious: one text and one head at a time, in float64, straight from the equations.

Shares no code with midmask or transformers; autograd gives its gradients. Only what it is handed decides what is
hidden: corrupted ids, targets and visibility come from outside.
"""

import math
from functools import partial

import torch
from torch import Tensor

Vectors = list[Tensor]
EPS = 1e-12
LAYER = {
    **{part: f"attention.self.{part}" for part in ("query", "key", "value")},
    **{"attention_out": "attention.output.dense", "attention_norm": "attention.output.LayerNorm"},
    **{"feed_in": "intermediate.dense", "feed_out": "output.dense", "feed_norm": "output.LayerNorm"},
}
"""Part of a layer -> its name in BERT's."""


class Reference:
    """An objective's parameters by name, as fresh float64 leaves, and the model they make."""

    def __init__(self, module: torch.nn.Module, *, heads: int, layers: int, pad_id: int) -> None:
        leaves = module.named_parameters()
        self.weights = {name: leaf.detach().double().clone().requires_grad_() for name, leaf in leaves}
        self.heads, self.layers, self.pad_id = heads, layers, pad_id

    def read_as(self, prefix: str, name: str) -> "Reference":
        """Another model among the same leaves: those that begin with `prefix`, as if they began with `name`."""
        made = Reference(torch.nn.Module(), heads=self.heads, layers=self.layers, pad_id=self.pad_id)
        chosen = {key: leaf for key, leaf in self.weights.items() if key.startswith(prefix)}
        made.weights = {key.replace(prefix, name, 1).replace("/", "."): leaf for key, leaf in chosen.items()}
        return made

    def get(self, name: str) -> Tensor:
        return self.weights[name]

    def bert(self, name: str) -> Tensor:
        return self.weights[f"backbone.model.bert.{name}"]

    def linear(self, name: str, x: Tensor) -> Tensor:
        return x @ self.get(f"{name}.weight").T + self.get(f"{name}.bias")

    def norm(self, name: str, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        scale = torch.sqrt((centred**2).mean(-1, keepdim=True) + EPS)
        return centred / scale * self.get(f"{name}.weight") + self.get(f"{name}.bias")

    def word(self, token: int) -> Tensor:
        """Hugging Face gives the embedding row of the padding token no gradient, wherever the token stands."""
        row = self.bert("embeddings.word_embeddings.weight")[token]
        return row.detach() if token == self.pad_id else row

    def position(self, index: int) -> Tensor:
        return self.bert("embeddings.position_embeddings.weight")[index]

    def embed_vector(self, vector: Tensor, index: int) -> Tensor:
        kind = self.bert("embeddings.token_type_embeddings.weight")[0]
        return self.norm("backbone.model.bert.embeddings.LayerNorm", vector + self.position(index) + kind)

    def embed(self, tokens: list[int]) -> Vectors:
        return [self.embed_vector(self.word(token), index) for index, token in enumerate(tokens)]

    def attend(self, queries_QD: Tensor, keys_LD: Tensor, values_LD: Tensor, visible: list[list[bool]]) -> Tensor:
        """softmax(q · k / sqrt(d)) over the columns that a row sees, for each row and each head apart."""
        size = queries_QD.shape[1] // self.heads
        output = []
        for query, row in zip(queries_QD, visible, strict=True):
            pieces = []
            for head in range(self.heads):
                part = slice(head * size, (head + 1) * size)
                scores = keys_LD[row, part] @ query[part] / math.sqrt(size)
                exponentials = torch.exp(scores - scores.detach().max())
                pieces.append(exponentials / exponentials.sum() @ values_LD[row, part])
            output.append(torch.cat(pieces))
        return torch.stack(output)

    def layer(self, names: dict[str, str], queries: Vectors, context: Vectors, visible: list[list[bool]]) -> Vectors:
        """A post-norm layer; its residual is the stream of queries."""
        x_QD, context_LD = torch.stack(queries), torch.stack(context)
        keys_LD, values_LD = self.linear(names["key"], context_LD), self.linear(names["value"], context_LD)
        attended_QD = self.attend(self.linear(names["query"], x_QD), keys_LD, values_LD, visible)
        y_QD = self.norm(names["attention_norm"], x_QD + self.linear(names["attention_out"], attended_QD))
        inner = gelu(self.linear(names["feed_in"], y_QD))
        return list(self.norm(names["feed_norm"], y_QD + self.linear(names["feed_out"], inner)))

    def encode(self, tokens: list[int]) -> Vectors:
        return self.encode_states(self.embed(tokens))

    def encode_states(self, states: Vectors) -> Vectors:
        """The encoder's layers on what stands in the place of embeddings."""
        everything = [[True] * len(states)] * len(states)
        for number in range(self.layers):
            at = f"backbone.model.bert.encoder.layer.{number}"
            names = {part: f"{at}.{name}" for part, name in LAYER.items()}
            states = self.layer(names, states, states, everything)
        return states

    def decoder_names(self, number: int) -> dict[str, str]:
        return {part: f"decoder.{number}.{part}" for part in LAYER}

    def causal_decoder(self, name: str, states: Vectors, *, layers: int, window: int | None, vectors: int) -> Vectors:
        """GPT-2's pre-norm blocks and last norm; all rows see earlier vectors, and the last `window` columns."""
        visible = [
            [j <= i and (j < vectors or window is None or i - j < window) for j in range(len(states))]
            for i in range(len(states))
        ]
        x_LD = torch.stack(states)
        for number in range(layers):
            block = f"{name}.blocks.{number}"
            projected = self.linear(f"{block}.query_key_value", self.norm(f"{block}.attention_norm", x_LD))
            attended_LD = self.attend(*projected.chunk(3, dim=1), visible)
            x_LD = x_LD + self.linear(f"{block}.attention_out", attended_LD)
            inner = gelu(self.linear(f"{block}.feed_in", self.norm(f"{block}.feed_norm", x_LD)))
            x_LD = x_LD + self.linear(f"{block}.feed_out", inner)
        return list(self.norm(f"{name}.norm", x_LD))

    def written(self, vectors: Vectors, text: list[int], layers: int, window: int | None) -> Vectors:
        """-log p of each token of a text after its first one, by the causal decoder; it reads vectors in its place."""
        read = [*vectors, *self.embed(text)[1:]]
        states = self.causal_decoder("causal_decoder", read, layers=layers, window=window, vectors=len(vectors))
        return [self.surprise(state, token) for state, token in zip(states[len(vectors) - 1 :], text[1:], strict=False)]

    def logits(self, state: Tensor) -> Tensor:
        """By the masked-LM head: E · LN(GELU(W h + b)) + b_v."""
        transform = "backbone.model.cls.predictions.transform"
        x = self.norm(f"{transform}.LayerNorm", gelu(self.linear(f"{transform}.dense", state)))
        table, bias = self.bert("embeddings.word_embeddings.weight"), self.get("backbone.model.cls.predictions.bias")
        return table @ x + bias

    def decoder(self, states: Vectors, layers: int) -> Vectors:
        """Ordinary layers that see everything."""
        everything = [[True] * len(states)] * len(states)
        for number in range(layers):
            states = self.layer(self.decoder_names(number), states, states, everything)
        return states

    def surprise(self, state: Tensor, token: int) -> Tensor:
        """-log p(token) by the masked-LM head."""
        logits = self.logits(state)
        return log_sum_exp(logits) - logits[token]


def gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def log_sum_exp(x: Tensor) -> Tensor:
    largest = x.detach().max()
    return largest + torch.log(torch.exp(x - largest).sum())


def assert_same_gradients(module: torch.nn.Module, reference: Reference, tolerance: float = 1e-6) -> None:
    """Every parameter's gradient, absent meaning zero; and at least one is not zero."""
    moved = 0
    for name, parameter in module.named_parameters():
        expected = reference.weights[name].grad
        expected = torch.zeros_like(parameter) if expected is None else expected
        found = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        told = partial("{}: {}".format, name)
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, msg=told)
        moved += bool(expected.any())
    assert moved > 10
