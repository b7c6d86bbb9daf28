"""Trains a small convolutional network on scikit-learn's digits."""

import numpy as np
from sklearn.datasets import load_digits

import graphopt.lazy as lt

BATCH = 100


def init(seed):
    a, b, c = lt.random.split(lt.random.key(seed), 3)
    return [
        lt.random.normal((3, 3, 1, 16), key=a) * (1 / 9) ** 0.5,
        lt.random.normal((3, 3, 16, 32), key=b) * (1 / 144) ** 0.5,
        lt.random.normal((128, 10), key=c) * (1 / 128) ** 0.5,
    ]


def logits(params, images):
    first, second, head = params
    x = lt.nn.max_pool(lt.nn.relu(lt.nn.conv(images, first, padding="same")), 2)
    x = lt.nn.max_pool(lt.nn.relu(lt.nn.conv(x, second, padding="same")), 2)
    return lt.reshape(x, (x.shape[0], -1)) @ head


def loss(params, images, labels):
    return lt.mean(lt.nn.cross_entropy(logits(params, images), labels))


def main(epochs=6):
    digits = load_digits()
    images = lt.asarray((digits.images[..., None] / 16).astype(np.float32))
    labels = lt.asarray(digits.target)
    train = 1400
    params, speed = init(0), [0.0, 0.0, 0.0]
    gradient = lt.value_and_grad(loss)
    for epoch in range(epochs):
        for start in range(0, train, BATCH):
            with lt.step():
                batch = slice(start, start + BATCH)
                value, grads = gradient(params, images[batch], labels[batch])
                speed = [0.9 * s + g for s, g in zip(speed, grads, strict=True)]
                params = [p - 0.1 * s for p, s in zip(params, speed, strict=True)]
        print(f"epoch {epoch}: loss {float(value):.3f}")
    guess = lt.argmax(logits(params, images[train:]), axis=-1)
    accuracy = float(lt.mean(lt.astype(guess == labels[train:], lt.float32)))
    print(f"accuracy on held-out digits: {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
