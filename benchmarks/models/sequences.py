"""Models of sequences and of tokens, small."""

from __future__ import annotations

from typing import Any


def wavenet(k: Any, x: Any) -> Any:
    """Gated convolutions, dilated twice as far from layer to layer."""
    x = k.conv(k.image(x), 32, 1)
    total = None
    for layer in range(8):
        inner = k.bias(k.conv(x, 64, 3, spread=2 ** (layer % 8)))
        first, second = k.halves(inner)
        gated = k.tanh(first) * k.sigmoid(second)
        skip = k.conv(gated, 64, 1)
        total = skip if total is None else total + skip
        x = x + k.conv(gated, 32, 1)
    return k.bias(k.conv(k.relu(k.bias(k.conv(k.relu(total), 64, 1))), 64, 1))


def wav2vec2(k: Any, x: Any) -> Any:
    """Strided convolutions of a waveform, a grouped one for places, two layers of attention."""
    x = k.image(x)
    for out, window, stride in ((128, 10, 5), (128, 3, 2), (128, 3, 2), (128, 3, 2), (128, 2, 2)):
        x = k.gelu(k.channel_norm(k.conv(x, out, window, stride)))
    places = k.gelu(k.bias(k.conv(x, 128, 31, groups=16)))
    x = k.layer_norm(k.tokens(x + places))
    for _ in range(2):
        x = _block(k, x, 4, False)
    return k.dense(x, 32)


def bert(k: Any, x: Any) -> Any:
    """Four layers of attention to both sides."""
    x = k.layer_norm(k.embedded(x, 8192, 256))
    for _ in range(4):
        x = _block(k, x, 4, False)
    return k.dense(k.tanh(k.dense(x[:, 0], 256)), 2)


def gpt2(k: Any, x: Any) -> Any:
    """Four layers of causal attention, and scores of all words."""
    x = k.embedded(x, 4096, 256)
    for _ in range(4):
        x = _block(k, x, 4, True)
    return k.dense(k.layer_norm(x), 4096)


def vit(k: Any, x: Any) -> Any:
    """Patches of an image as tokens."""
    x = k.placed(k.dense(k.patches(k.image(x), 16), 192))
    for _ in range(4):
        x = _block(k, x, 3, False)
    return k.dense(k.layer_norm(x).mean(1), 1000)


def _block(k: Any, x: Any, heads: int, causal: bool) -> Any:
    y, width = k.layer_norm(x), x.shape[-1]
    query, key, value = (k.heads(k.dense(y, width), heads) for _ in range(3))
    x = x + k.dense(k.attention(query, key, value, causal), width)
    return x + k.dense(k.gelu(k.dense(k.layer_norm(x), 4 * width)), width)
