"""An encoder-decoder that writes queries for passages: a backbone's encoder, and a small BERT decoder that attends to
it.

Both are Hugging Face's own (`EncoderDecoderModel`), so a saved folder is read by `AutoModelForSeq2SeqLM`. The decoder
begins with the encoder's weights where names and shapes agree, which are embeddings and first layers in the BERT family
(Rothe et al. 2020, "Leveraging pre-trained checkpoints for sequence generation"); attention to the encoder is fresh.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModel, BertConfig

from midmask.core.batch import TokenRows
from midmask.core.torch_randomness import fresh_weights
from midmask.encoders.backbone import BackboneConfig
from midmask.encoders.families import widen_scores
from midmask.encoders.reading import named_folder, quiet_transformers, read_pretrained, read_settings, save_model
from midmask.errors import UserError
from midmask.text.vocabulary import Vocabulary


class Seq2Seq(nn.Module):
    """A Hugging Face `EncoderDecoderModel`. The decoder begins with [CLS] and ends with [SEP]."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        widen_scores(model)
        self.model = model

    def forward(self, passages: TokenRows, begun: Tensor) -> Tensor:
        """The logits of each next token.

        Args:
            begun: the queries without their last token, int64 [B, L].

        Returns:
            float [B, L, V].
        """
        width = passages.ids_BL.shape[1]
        seen_BL = torch.arange(width, device=passages.ids_BL.device) < passages.lengths_B[:, None]
        output = self.model(
            input_ids=passages.ids_BL, attention_mask=seen_BL.long(), decoder_input_ids=begun, use_cache=False
        )
        logits: Tensor = output.logits
        return logits

    def save(self, folder: Path, tokenizer_folder: Path, *, length: int) -> None:
        """Writes a folder that AutoModelForSeq2SeqLM loads.

        Args:
            length: tokens of a passage in training; its tokenizer cuts texts there.
        """
        save_model(self.model, folder, tokenizer_folder, max_length=length)


def build_seq2seq(config: BackboneConfig, vocabulary: Vocabulary, *, decoder_layers: int, seed: int) -> Seq2Seq:
    """The model that a generator's training starts from. Fresh weights depend on `seed` alone.

    Raises:
        UserError: if there is no such encoder of a supported family, or its vocabulary is smaller than the tokenizer's.
    """
    with fresh_weights(seed):
        model = fresh_seq2seq(config, vocabulary, decoder_layers=decoder_layers)
        if config.is_pretrained:
            folder, named = named_folder(config.name), f"backbone.name = {config.name!r}"
            published = read_pretrained(AutoModel, folder, named, use_safetensors=True)[0]
            model.encoder.load_state_dict(published.state_dict())
        _share_weights(model)
    if (entries := len(model.encoder.get_input_embeddings().weight)) < vocabulary.size:
        raise UserError(
            f"generator: {config.name} has {entries} embeddings and the tokenizer {vocabulary.size} entries; tokenise "
            f"with its own: --set tokens.tokenizer={config.name}"
        )
    return Seq2Seq(model)


def fresh_seq2seq(config: BackboneConfig, vocabulary: Vocabulary, *, decoder_layers: int) -> Any:
    """An encoder of the backbone's shape and a decoder of its width, with fresh weights.

    Raises:
        UserError: if there is no such encoder of a supported family.
    """
    encoder = read_settings(config.name, config.dropout, vocabulary.size, vocabulary.pad_id)
    ends = {
        "bos_token_id": vocabulary.cls_id,
        "eos_token_id": vocabulary.sep_id,
        "pad_token_id": vocabulary.pad_id,
    }
    decoder = BertConfig(
        vocab_size=encoder.vocab_size,
        hidden_size=encoder.hidden_size,
        num_hidden_layers=decoder_layers,
        num_attention_heads=encoder.num_attention_heads,
        intermediate_size=4 * encoder.hidden_size,
        max_position_embeddings=512,
        hidden_dropout_prob=config.dropout,
        attention_probs_dropout_prob=config.dropout,
        initializer_range=float(getattr(encoder, "initializer_range", 0.02)),
        is_decoder=True,
        add_cross_attention=True,
        **ends,
    )
    # Here, since a dry run whose costs are remembered builds no model.
    from transformers import BertLMHeadModel, EncoderDecoderConfig, EncoderDecoderModel

    joined = EncoderDecoderConfig.from_encoder_decoder_configs(
        encoder, decoder, decoder_start_token_id=vocabulary.cls_id, vocab_size=encoder.vocab_size, **ends
    )
    parts = AutoModel.from_config(encoder, dtype=torch.float32), BertLMHeadModel(decoder)
    with quiet_transformers():
        model = EncoderDecoderModel(joined, *parts)
    settings = model.generation_config
    settings.decoder_start_token_id = vocabulary.cls_id
    settings.bos_token_id, settings.eos_token_id, settings.pad_token_id = ends.values()
    return model


def _share_weights(model: Any) -> None:
    """Gives the decoder a copy of the encoder's weights where names and shapes agree."""
    weights, state = model.encoder.state_dict(), model.decoder.bert.state_dict()
    fitting = {name: value for name, value in weights.items() if name in state and state[name].shape == value.shape}
    model.decoder.bert.load_state_dict(fitting, strict=False)
