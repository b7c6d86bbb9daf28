"""Models of images, small: fewer blocks and pixels than their originals, the same kinds of layers."""

from __future__ import annotations

from typing import Any


def mobilenet_v2(k: Any, x: Any) -> Any:
    """Inverted residuals with depthwise 3x3 convolutions."""
    x = k.relu6(k.batch_norm(k.conv(k.image(x), 32, 3, 2)))
    for factor, out, blocks, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 2, 2), (6, 64, 2, 2), (6, 96, 1, 1), (6, 160, 2, 2),
    ):  # fmt: skip
        for block in range(blocks):
            x = _inverted(k, x, factor, out, stride if block == 0 else 1)
    x = k.relu6(k.batch_norm(k.conv(x, 1280, 1)))
    return k.dense(k.pooled(x), 1000)


def _inverted(k: Any, x: Any, factor: int, out: int, stride: int) -> Any:
    before, channels = x, k.channels(x)
    wide = channels * factor
    if factor > 1:
        x = k.relu6(k.batch_norm(k.conv(x, wide, 1)))
    x = k.relu6(k.batch_norm(k.conv(x, wide, 3, stride, wide)))
    x = k.batch_norm(k.conv(x, out, 1))
    return before + x if stride == 1 and channels == out else x


def efficientnet(k: Any, x: Any) -> Any:
    """The same with squeeze and excite, swish, windows of 3 and 5."""
    x = k.silu(k.batch_norm(k.conv(k.image(x), 32, 3, 2)))
    for factor, out, blocks, stride, window in (
        (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 2, 2, 3), (6, 112, 1, 1, 5),
        (6, 192, 2, 2, 5),
    ):  # fmt: skip
        for block in range(blocks):
            x = _squeezed(k, x, factor, out, stride if block == 0 else 1, window)
    x = k.silu(k.batch_norm(k.conv(x, 1280, 1)))
    return k.dense(k.pooled(x), 1000)


def _squeezed(k: Any, x: Any, factor: int, out: int, stride: int, window: int) -> Any:
    before, channels = x, k.channels(x)
    wide = channels * factor
    if factor > 1:
        x = k.silu(k.batch_norm(k.conv(x, wide, 1)))
    x = k.silu(k.batch_norm(k.conv(x, wide, window, stride, wide)))
    gate = k.silu(k.bias(k.conv(k.pooled(x, keepdims=True), max(1, channels // 4), 1)))
    x = x * k.sigmoid(k.bias(k.conv(gate, wide, 1)))
    x = k.batch_norm(k.conv(x, out, 1))
    return before + x if stride == 1 and channels == out else x


def convnext(k: Any, x: Any) -> Any:
    """Depthwise 7x7 convolutions, layer normalisation, four times as many channels between."""
    x = k.channel_norm(k.bias(k.conv(k.image(x), 48, 4, 4)))
    for out, blocks in ((48, 2), (96, 2), (192, 3)):
        if k.channels(x) != out:
            x = k.bias(k.conv(k.channel_norm(x), out, 2, 2))
        for _ in range(blocks):
            y = k.channel_norm(k.bias(k.conv(x, out, 7, 1, out)))
            y = k.gelu(k.bias(k.conv(y, 4 * out, 1)))
            x = x + k.bias(k.conv(y, out, 1))
    return k.dense(k.layer_norm(k.pooled(x)), 1000)


def resnet18(k: Any, x: Any) -> Any:
    """Basic blocks of two 3x3 convolutions."""
    x = k.relu(k.batch_norm(k.conv(k.image(x), 64, 7, 2)))
    x = k.max_pool(x, 3, 2, 1)
    for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for block in range(2):
            x = _basic(k, x, out, stride if block == 0 else 1)
    return k.dense(k.pooled(x), 1000)


def _basic(k: Any, x: Any, out: int, stride: int) -> Any:
    y = k.relu(k.batch_norm(k.conv(x, out, 3, stride)))
    y = k.batch_norm(k.conv(y, out, 3))
    if stride > 1 or k.channels(x) != out:
        x = k.batch_norm(k.conv(x, out, 1, stride))
    return k.relu(x + y)


def regnet(k: Any, x: Any) -> Any:
    """Bottlenecks whose 3x3 convolutions have groups of 8 channels."""
    x = k.relu(k.batch_norm(k.conv(k.image(x), 32, 3, 2)))
    for out, blocks in ((24, 1), (56, 1), (152, 3), (368, 2)):
        for block in range(blocks):
            x = _bottleneck(k, x, out, 2 if block == 0 else 1)
    return k.dense(k.pooled(x), 1000)


def _bottleneck(k: Any, x: Any, out: int, stride: int) -> Any:
    y = k.relu(k.batch_norm(k.conv(x, out, 1)))
    y = k.relu(k.batch_norm(k.conv(y, out, 3, stride, out // 8)))
    y = k.batch_norm(k.conv(y, out, 1))
    if stride > 1 or k.channels(x) != out:
        x = k.batch_norm(k.conv(x, out, 1, stride))
    return k.relu(x + y)


def unet(k: Any, x: Any) -> Any:
    """Down by max pools and up by transposed convolutions, images joined on the way."""
    x, kept = k.image(x), []
    for out in (16, 32, 64):
        x = _twice(k, x, out)
        kept.append(x)
        x = k.max_pool(x, 2, 2, 0)
    x = _twice(k, x, 128)
    for out in (64, 32, 16):
        x = _twice(k, k.joined(k.bias(k.doubled(x, out)), kept.pop()), out)
    return k.bias(k.conv(x, 4, 1))


def _twice(k: Any, x: Any, out: int) -> Any:
    for _ in range(2):
        x = k.relu(k.batch_norm(k.conv(x, out, 3)))
    return x
