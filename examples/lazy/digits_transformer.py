"""Trains a small transformer on scikit-learn's digits: 8 rows of 8 pixels are the 8 tokens."""

import numpy as np
from sklearn.datasets import load_digits

import graphopt.lazy as lt

WIDTH, HEADS, LAYERS, BATCH = 32, 4, 2, 128


def init(seed):
    keys = iter(lt.random.split(lt.random.key(seed), 64))

    def dense(rows, columns):
        return lt.random.normal((rows, columns), key=next(keys)) * rows**-0.5

    def layer():
        return {
            "qkv": dense(WIDTH, 3 * WIDTH), "out": dense(WIDTH, WIDTH),
            "up": dense(WIDTH, 4 * WIDTH), "down": dense(4 * WIDTH, WIDTH),
            "norm1": lt.ones(WIDTH), "norm2": lt.ones(WIDTH),
        }  # fmt: skip

    return {
        "embed": dense(8, WIDTH), "position": dense(8, WIDTH) * 0.1,
        "layers": [layer() for _ in range(LAYERS)], "head": dense(WIDTH, 10),
    }  # fmt: skip


def attention(p, x):
    batch, tokens, _ = x.shape
    qkv = lt.reshape(x @ p["qkv"], (batch, tokens, 3, HEADS, WIDTH // HEADS))
    q, k, v = (lt.permute_dims(qkv[:, :, k], (0, 2, 1, 3)) for k in range(3))
    mixed = lt.nn.scaled_dot_product_attention(q, k, v)
    return lt.reshape(lt.permute_dims(mixed, (0, 2, 1, 3)), (batch, tokens, WIDTH)) @ p["out"]


def logits(params, images):
    x = images @ params["embed"] + params["position"]
    for p in params["layers"]:
        x = x + attention(p, lt.nn.layer_norm(x, p["norm1"]))
        x = x + lt.nn.gelu(lt.nn.layer_norm(x, p["norm2"]) @ p["up"]) @ p["down"]
    return lt.mean(x, axis=1) @ params["head"]


def loss(params, images, labels):
    return lt.mean(lt.nn.cross_entropy(logits(params, images), labels))


def tree_map(function, *trees):
    first = trees[0]
    if isinstance(first, dict):
        return {k: tree_map(function, *(t[k] for t in trees)) for k in first}
    if isinstance(first, list):
        return [tree_map(function, *parts) for parts in zip(*trees, strict=True)]
    return function(*trees)


def adam(params, grads, m, v, step, rate=3e-3):
    m = tree_map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
    v = tree_map(lambda v, g: 0.99 * v + 0.01 * g * g, v, grads)
    scale = rate * (1 - 0.99**step) ** 0.5 / (1 - 0.9**step)  # a number that changes every step
    return tree_map(lambda p, m, v: p - scale * m / (lt.sqrt(v) + 1e-8), params, m, v), m, v


def main(epochs=15):
    digits = load_digits()
    images = lt.asarray((digits.images / 16).astype(np.float32))
    labels = lt.asarray(digits.target)
    train = 1400
    params = init(0)
    m = v = tree_map(lt.zeros_like, params)
    gradient = lt.value_and_grad(loss)
    step = 0
    for epoch in range(epochs):
        order = lt.random.permutation(train)
        for start in range(0, train - BATCH + 1, BATCH):
            step += 1
            with lt.step():
                chosen = order[start : start + BATCH]
                value, grads = gradient(params, images[chosen], labels[chosen])
                params, m, v = adam(params, grads, m, v, step)
        print(f"epoch {epoch}: loss {float(value):.3f}")
    guess = lt.argmax(logits(params, images[train:]), axis=-1)
    accuracy = float(lt.mean(lt.astype(guess == labels[train:], lt.float32)))
    print(f"accuracy on held-out digits: {accuracy:.3f}")
    print(lt.metrics())
    return accuracy


if __name__ == "__main__":
    main()
