"""Genomes: alignment and folding by dynamic programming, and likelihoods of sites and trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.sealed.common import Program, integers, normal, uniform

__all__ = ["WORKLOADS"]


def minimizer_sketch() -> Program:
    """Hashes of the words of reads, their minima in windows, and how much two reads share."""
    word, window = 12, 10

    def mixed(x: Any) -> Any:
        x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
        x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
        return x ^ (x >> 16)

    def sketch(bases: Any, salt: Any) -> Any:
        count = bases.shape[0] - word + 1

        def extend(k: Any, code: Any) -> Any:
            piece = lax.dynamic_slice_in_dim(bases, k, count)
            return (code << 2) | piece.astype(jnp.uint32)

        code = lax.fori_loop(0, word, extend, jnp.zeros(count, jnp.uint32))
        hashes = mixed(code ^ salt)
        largest = jnp.uint32(0xFFFFFFFF)
        minima = lax.reduce_window(hashes, largest, lax.min, (window,), (1,), "VALID")
        ordered = jnp.sort(minima)
        fresh = jnp.concatenate([jnp.array([True]), ordered[1:] != ordered[:-1]])
        return jnp.where(fresh, ordered, largest), fresh.sum()

    def fn(reads: Any, salt: Any) -> Any:
        sketches, sizes = jax.vmap(sketch, (0, None))(reads, salt)
        first = sketches[0]
        places = jnp.searchsorted(jnp.sort(first), sketches[1:])
        found = jnp.sort(first)[jnp.minimum(places, first.shape[0] - 1)] == sketches[1:]
        shared = jnp.sum(found & (sketches[1:] != jnp.uint32(0xFFFFFFFF)), axis=1)
        return shared / (sizes[0] + sizes[1:] - shared), sizes

    reads = integers(1, 4, 1, 300)
    changed = jnp.where(uniform(2, 3, 300) < 0.03, integers(3, 4, 3, 300), reads)
    return fn, (jnp.concatenate([reads, changed]), jnp.asarray(np.uint32(0x9E3779B9)))


def allele_frequencies() -> Program:
    """Allele frequencies and inbreeding of many sites from genotype likelihoods, by EM."""

    def fn(likelihood: Any, start: Any) -> Any:
        def prior(p: Any, f: Any) -> Any:
            q = 1 - p
            return jnp.stack([q * q + f * p * q, 2 * p * q * (1 - f), p * p + f * p * q], -1)

        def improve(carry: Any) -> Any:
            p, f, _, count = carry
            weights = likelihood * prior(p, f)[:, None, :]
            posterior = weights / weights.sum(-1, keepdims=True)
            dose = posterior @ jnp.array([0.0, 0.5, 1.0])
            new = jnp.clip(dose.mean(1), 1e-3, 1 - 1e-3)
            mixed = posterior[..., 1].mean(1)
            f = jnp.clip(1 - mixed / (2 * new * (1 - new)), 0.0, 0.9)
            return new, f, jnp.max(jnp.abs(new - p)), count + 1

        def unfinished(carry: Any) -> Any:
            return (carry[2] > 1e-4) & (carry[3] < 15)

        carry = (start, jnp.zeros_like(start), jnp.inf, 0)
        p, f, _, _ = lax.while_loop(unfinished, improve, carry)
        evidence = jnp.log(jnp.sum(likelihood * prior(p, f)[:, None, :], -1)).sum(1)
        return p, f, evidence

    sites, people = 48, 30
    truth = np.random.default_rng(4).beta(1.5, 1.5, sites)
    doses = np.random.default_rng(5).binomial(2, truth[:, None], (sites, people))
    error = 0.05 + 0.1 * uniform(6, sites, people, 3)
    likelihood = jnp.where(jnp.asarray(doses)[..., None] == jnp.arange(3), 1 - error, error)
    return fn, (likelihood, 0.3 + 0.4 * uniform(7, sites))


def _local_score(first: Any, second: Any, table: Any, gap: Any, extend: Any) -> Any:
    """Best local alignment with affine gaps, one anti-diagonal after another."""
    m, n = first.shape[0], second.shape[0]
    rows = jnp.arange(m)
    low = jnp.full(m, -1e9)

    def shifted(x: Any, fill: Any) -> Any:
        return jnp.concatenate([jnp.full(1, fill), x[:-1]])

    def diagonal(carry: Any, d: Any) -> Any:
        before, last, across, down, best = carry
        columns = d - rows
        inside = (columns >= 0) & (columns < n)
        match = table[first, second[jnp.clip(columns, 0, n - 1)]]
        across = jnp.maximum(last - gap, across - extend)
        down = jnp.maximum(shifted(last, 0.0) - gap, shifted(down, -1e9) - extend)
        score = jnp.maximum(shifted(before, 0.0) + match, jnp.maximum(across, down))
        score = jnp.where(inside, jnp.maximum(score, 0.0), 0.0)
        across, down = jnp.where(inside, across, -1e9), jnp.where(inside, down, -1e9)
        return (last, score, across, down, jnp.maximum(best, score)), None

    start = (jnp.zeros(m), jnp.zeros(m), low, low, jnp.zeros(m))
    (*_, best), _ = lax.scan(diagonal, start, jnp.arange(m + n - 1))
    return best.max()


def local_alignments() -> Program:
    """Local alignment scores of one protein against a small database."""

    def fn(query: Any, database: Any, table: Any, gap: Any, extend: Any) -> Any:
        score = jax.vmap(_local_score, (None, 0, None, None, None))
        scores = score(query, database, table, gap, extend)
        return scores, (scores - scores.mean()) / scores.std()

    query = integers(8, 20, 96)
    database = jnp.where(uniform(9, 12, 96) < 0.6, integers(10, 20, 12, 96), query)
    table = normal(11, 20, 20)
    table = 0.5 * (table + table.T) - 1 + 5 * jnp.eye(20)
    return fn, (query, database, table, jnp.asarray(5.0), jnp.asarray(1.0))


def _shares(counts: Any) -> Any:
    """Rows of counts as shares."""
    return counts / counts.sum(1, keepdims=True)


def island_posteriors() -> Program:
    """Posterior states of a hidden Markov model of CpG islands, and one step of Baum-Welch."""
    length, states = 5000, 8

    def fn(bases: Any, initial: Any, transition: Any, emission: Any) -> Any:
        seen = emission[:, bases].T

        def forward(alpha: Any, e: Any) -> Any:
            alpha = (alpha @ transition) * e
            scale = alpha.sum()
            return alpha / scale, (alpha / scale, scale)

        first = initial * seen[0]
        start = first / first.sum()
        _, (alphas, scales) = lax.scan(forward, start, seen[1:])
        alphas = jnp.concatenate([start[None], alphas])

        def backward(beta: Any, inputs: Any) -> Any:
            e, scale = inputs
            new = transition @ (e * beta) / scale
            return new, beta

        ones = jnp.ones(states)
        first_beta, betas = lax.scan(backward, ones, (seen[1:], scales), reverse=True)
        posterior = alphas * jnp.concatenate([first_beta[None], betas])
        pairs = jnp.einsum("ti,tj->ij", alphas[:-1], seen[1:] * betas / scales[:, None])
        emitted = jax.ops.segment_sum(posterior, bases, num_segments=4).T
        evidence = jnp.log(first.sum()) + jnp.log(scales).sum()
        return evidence, posterior, _shares(pairs * transition), _shares(emitted)

    transition = 0.05 * uniform(12, states, states) + jnp.eye(states)
    emission = 0.2 + uniform(13, states, 4)
    return fn, (
        integers(14, 4, length),
        jnp.full(states, 1 / states),
        _shares(transition),
        _shares(emission),
    )


def _random_tree(rng: np.random.Generator, leaves: int) -> jax.Array:
    """The parent of each node but the root, children before parents."""
    parents, alive = np.zeros(2 * leaves - 2, np.int32), list(range(leaves))
    for node in range(leaves, 2 * leaves - 1):
        for _ in range(2):
            parents[alive.pop(int(rng.integers(len(alive))))] = node
        alive.append(node)
    return jnp.asarray(parents)


def tree_likelihood() -> Program:
    """Likelihood of aligned bases on a tree by pruning, with its gradient by branch and rate."""
    leaves, sites = 32, 1200

    def loss(params: dict[str, Any], parents: Any, tips: Any, weights: Any) -> Any:
        shares = jax.nn.softmax(params["composition"])
        rates = jnp.zeros((4, 4)).at[jnp.triu_indices(4, 1)].set(jnp.exp(params["exchange"]))
        rates = (rates + rates.T) * shares
        rates = rates - jnp.diag(rates.sum(1))
        rates = rates / -jnp.sum(shares * jnp.diag(rates))
        lengths = jnp.exp(params["branches"])
        moves = jax.vmap(lambda t: jax.scipy.linalg.expm(rates * t, max_squarings=4))(lengths)
        nodes = 2 * leaves - 1
        partial = jnp.ones((nodes, sites, 4)).at[:leaves].set(tips)

        def prune(node: Any, carry: Any) -> Any:
            partial, scale = carry
            top = partial[node].max(-1, keepdims=True)
            up = (partial[node] / top) @ moves[node].T
            return partial.at[parents[node]].multiply(up), scale + jnp.log(top[:, 0])

        partial, scale = lax.fori_loop(0, nodes - 1, prune, (partial, jnp.zeros(sites)))
        return -jnp.sum(weights * (jnp.log(partial[-1] @ shares) + scale)) / sites

    def fn(params: dict[str, Any], parents: Any, tips: Any, weights: Any) -> Any:
        return jax.value_and_grad(loss)(params, parents, tips, weights)

    rng = np.random.default_rng(15)
    ancestor = rng.integers(0, 4, sites)
    bases = np.where(rng.uniform(size=(leaves, sites)) < 0.7, ancestor, rng.integers(0, 4, sites))
    params = {
        "composition": 0.1 * normal(16, 4),
        "exchange": 0.2 * normal(17, 6),
        "branches": -2 + 0.3 * normal(18, 2 * leaves - 2),
    }
    tips = jnp.asarray(np.eye(4)[bases])
    return fn, (params, _random_tree(rng, leaves), tips, 0.5 + uniform(19, sites))


def folding_ensemble() -> Program:
    """The partition function of the foldings of an RNA, and its gradient: the pair counts."""
    length, shortest = 64, 4

    def log_partition(energy: Any, bases: Any, stack: Any) -> Any:
        weights = jnp.exp(-energy)[bases[:, None], bases[None, :]]
        places = jnp.arange(length)
        after = jnp.arange(length + 1)[None, :] >= places[:, None]

        def span(d: Any, carry: Any) -> Any:
            total, paired = carry
            j = jnp.minimum(places + d, length - 1)
            fits = places + d < length
            inner = total[places + 1, j] + stack * paired[places + 1, j - 1]
            closed = jnp.where(fits & (d >= shortest), weights[places, j] * inner, 0.0)
            paired = paired.at[places, j].add(closed)
            left = jnp.where(after, total[:length], 0.0)
            value = total[places, j] + jnp.sum(left * paired[:, j].T, axis=1)
            value = jnp.where(fits, value, total[places, j + 1])
            return total.at[places, j + 1].set(value), paired

        start = (jnp.ones((length + 1, length + 1)), jnp.zeros((length + 1, length + 1)))
        total, _ = lax.fori_loop(1, length, span, start)
        return jnp.log(total[0, length])

    def fn(energy: Any, sequences: Any, stack: Any) -> Any:
        fold = jax.value_and_grad(log_partition)
        return jax.vmap(fold, (None, 0, None))(energy, sequences, stack)

    pairs = np.full((4, 4), 6.0)
    for a, b, e in ((0, 3, -0.3), (1, 2, -0.8), (2, 3, 0.2)):
        pairs[a, b] = pairs[b, a] = e
    return fn, (jnp.asarray(pairs), integers(20, 4, 8, length), jnp.asarray(0.7))


WORKLOADS: dict[str, Callable[[], Program]] = {
    "minimizer-sketch": minimizer_sketch,
    "allele-frequencies": allele_frequencies,
    "local-alignments": local_alignments,
    "island-posteriors": island_posteriors,
    "tree-likelihood": tree_likelihood,
    "folding-ensemble": folding_ensemble,
}
