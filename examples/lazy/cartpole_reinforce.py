"""REINFORCE (Williams, 1992) on Gymnasium's CartPole: a Python environment and a lazy policy.

Episodes have any length. Padding them to a few lengths keeps the number of different graphs small.
"""

import gymnasium
import numpy as np

import graphopt.lazy as lt

LENGTHS = (32, 64, 128, 256, 512)


def init(seed):
    a, b = lt.random.split(lt.random.key(seed))
    return [lt.random.normal((4, 32), key=a) * 0.5, lt.random.normal((32, 2), key=b) * 0.1]


def logits(params, observations):
    return lt.tanh(observations @ params[0]) @ params[1]


def loss(params, observations, actions, weights):
    return lt.sum(lt.nn.cross_entropy(logits(params, observations), actions) * weights)


def play(params, env, rng):
    """One episode: observations [T, 4], actions [T], number of steps T."""
    first, second = (p.numpy() for p in params)  # acting one step at a time is faster in NumPy
    observation, _ = env.reset(seed=int(rng.integers(2**31)))
    observations, actions, done = [], [], False
    while not done:
        scores = np.tanh(observation @ first) @ second
        action = int(rng.random() < 1 / (1 + np.exp(scores[0] - scores[1])))
        observations.append(observation)
        actions.append(action)
        observation, _, terminated, truncated, _ = env.step(action)
        done = terminated or truncated
    return np.array(observations), np.array(actions)


def padded(x, length):
    return np.concatenate([x, np.zeros((length - len(x), *x.shape[1:]), x.dtype)])


def main(episodes=150, seed=0):
    env, rng = gymnasium.make("CartPole-v1"), np.random.default_rng(seed)
    params, mean, lengths = init(seed), 20.0, []
    gradient = lt.value_and_grad(loss)
    for _ in range(episodes):
        observations, actions = play(params, env, rng)
        steps = len(actions)
        lengths.append(steps)
        returns = np.cumsum(0.99 ** np.arange(steps))[::-1].astype(np.float32)
        weights = (returns - mean) / 20.0 / steps
        mean += 0.1 * (returns.mean() - mean)
        size = next(n for n in LENGTHS if n >= steps)
        batch = (lt.asarray(padded(x, size)) for x in (observations, actions, weights))
        with lt.step():
            _, grads = gradient(params, *batch)
            params = [p - 0.3 * g for p, g in zip(params, grads, strict=True)]
    env.close()
    early, late = np.mean(lengths[:20]), np.mean(lengths[-20:])
    print(f"mean episode length: first 20: {early:.0f}, last 20: {late:.0f}")
    return early, late


if __name__ == "__main__":
    main()
