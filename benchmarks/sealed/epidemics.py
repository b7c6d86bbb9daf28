"""Epidemics: compartments, agents on a contact network, and inference of transmission."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.sealed.common import Program, integers, normal, uniform

__all__ = ["WORKLOADS"]


def _seir_rates(state: Any, contacts: Any, params: dict[str, Any]) -> Any:
    """Rates of change of susceptible, exposed, infectious and recovered shares by age."""
    s, e, i, _ = state
    force = params["beta"] * (contacts @ i)
    infection = force * s
    onset = params["sigma"] * e
    recovery = params["gamma"] * i
    return jnp.stack([-infection, infection - onset, onset - recovery, recovery])


def seir_ages() -> Program:
    """An age-structured SEIR model by Runge-Kutta, one step a day for a season."""

    def fn(start: Any, contacts: Any, params: dict[str, Any]) -> Any:
        def day(state: Any, _: Any) -> Any:
            k1 = _seir_rates(state, contacts, params)
            k2 = _seir_rates(state + 0.5 * k1, contacts, params)
            k3 = _seir_rates(state + 0.5 * k2, contacts, params)
            k4 = _seir_rates(state + k3, contacts, params)
            new = state + (k1 + 2 * k2 + 2 * k3 + k4) / 6
            return new, params["sigma"] * new[1]

        final, incidence = lax.scan(day, start, None, length=90)
        peak = jnp.max(incidence, axis=0)
        return final, incidence.sum(0), peak

    groups = 6
    contacts = uniform(1, groups, groups) + 2 * jnp.eye(groups)
    contacts = 0.5 * (contacts + contacts.T)
    seeded = 0.001 * (1 + uniform(2, groups))
    start = jnp.stack([1 - seeded, seeded, 0 * seeded, 0 * seeded])
    params = {"beta": jnp.asarray(0.08), "sigma": jnp.asarray(0.25), "gamma": jnp.asarray(0.2)}
    return fn, (start, contacts, params)


def final_size() -> Program:
    """Final sizes of an epidemic in two mixing groups, for many scenarios, by Newton's method."""

    def solve(reproduction: Any, vaccinated: Any) -> Any:
        def residual(z: Any) -> Any:
            return z - (1 - vaccinated) * (1 - jnp.exp(-reproduction @ z))

        def unfinished(carry: Any) -> Any:
            _, error, count = carry
            return (error > 1e-5) & (count < 20)

        def newton(carry: Any) -> Any:
            z, _, count = carry
            (a, b), (c, d) = jax.jacfwd(residual)(z)
            r = residual(z)
            step = jnp.stack([d * r[0] - b * r[1], a * r[1] - c * r[0]]) / (a * d - b * c)
            return z - step, jnp.max(jnp.abs(step)), count + 1

        return lax.while_loop(unfinished, newton, (1 - vaccinated, jnp.inf, 0))[0]

    def fn(reproduction: Any, vaccinated: Any) -> Any:
        sizes = jax.vmap(solve)(reproduction, vaccinated)
        return sizes, sizes.mean(0)

    reproduction = 0.8 + uniform(3, 64, 2, 2)
    return fn, (reproduction, 0.3 * uniform(4, 64, 2))


def renewal_gradient() -> Program:
    """Gradient of the likelihood of case counts under a renewal equation with weekly rates."""
    days, window = 84, 14

    def loss(log_rate: Any, log_seed: Any, cases: Any, interval: Any) -> Any:
        rates = jnp.exp(jnp.repeat(log_rate, 7))

        def day(recent: Any, rate: Any) -> Any:
            expected = rate * jnp.dot(recent, interval)
            return jnp.concatenate([expected[None], recent[:-1]]), expected

        start = jnp.full(window, jnp.exp(log_seed))
        _, expected = lax.scan(day, start, rates)
        poisson = expected - cases * jnp.log(expected + 1e-6)
        smooth = jnp.sum(jnp.diff(log_rate) ** 2) / (2 * 0.2**2)
        return jnp.sum(poisson) / days + smooth

    def fn(log_rate: Any, log_seed: Any, cases: Any, interval: Any) -> Any:
        return jax.value_and_grad(loss, argnums=(0, 1))(log_rate, log_seed, cases, interval)

    interval = np.arange(1, window + 1) ** 2 * np.exp(-np.arange(1, window + 1) / 1.8)
    cases = 40 + 25 * jnp.sin(jnp.arange(days) / 13.0) + 5 * normal(5, days)
    log_rate = 0.1 * normal(6, days // 7)
    return fn, (log_rate, jnp.asarray(3.0), cases, jnp.asarray(interval / interval.sum()))


def mobility_patches() -> Program:
    """SIR in towns joined by a gravity model of commuting, with lockdowns above a threshold."""
    towns = 160

    def fn(places: Any, people: Any, infected: Any, beta: Any, closing: Any) -> Any:
        gap = places[:, None, :] - places[None, :, :]
        distance = jnp.sqrt(jnp.sum(gap**2, -1) + 0.01)
        flow = people[None, :] / distance**2 * (1 - jnp.eye(towns))
        travel = 0.8 * jnp.eye(towns) + 0.2 * flow / flow.sum(1, keepdims=True)

        def day(carry: Any, _: Any) -> Any:
            s, i = carry
            present = travel.T @ people
            prevalence = (travel.T @ i) / present
            open_share = jax.nn.sigmoid((closing - prevalence) / (0.1 * closing))
            rate = beta * (0.3 + 0.7 * open_share) * prevalence
            new = s * (1 - jnp.exp(-(travel @ rate)))
            s, i = s - new, i + new - 0.15 * i
            return (s, i), (new.sum(), open_share.mean())

        start = (people - infected, infected)
        (s, i), (curve, openness) = lax.scan(day, start, None, length=120)
        return s / people, i, curve, openness

    people = 1000 * jnp.exp(normal(7, towns))
    infected = jnp.where(jnp.arange(towns) < 3, 0.01, 0.0) * people
    args = (uniform(8, towns, 2), people, infected, jnp.asarray(0.4), jnp.asarray(0.05))
    return fn, args


def _network_day(carry: Any, key: Any, edges: Any, age: Any, params: dict[str, Any]) -> Any:
    """One day: infections along edges, then the clocks of the infected move on."""
    state, clock = carry
    infect_key, length_key = jax.random.split(key)
    source, target = edges
    shedding = jnp.where(state == 2, 1.0 - 0.5 * (clock < 2), 0.0)
    pressure = jax.ops.segment_sum(shedding[source], target, num_segments=state.shape[0])
    chance = 1 - jnp.exp(-params["beta"] * params["susceptibility"][age] * pressure)
    caught = (state == 0) & (jax.random.uniform(infect_key, chance.shape) < chance)
    duration = jax.random.randint(length_key, clock.shape, 3, 8)
    due = (clock <= 0) & ((state == 1) | (state == 2))
    state = jnp.where(caught, 1, jnp.where(due, state + 1, state))
    clock = jnp.where(caught | due, duration, clock - 1)
    counts = jnp.bincount(state, length=4)
    return (state, clock), counts


def contact_network() -> Program:
    """Agents on a random contact network who fall ill, shed and recover, day by day."""
    agents, links, days = 12_000, 48_000, 60

    def fn(key: Any, state: Any, edges: Any, age: Any, params: dict[str, Any]) -> Any:
        def day(carry: Any, key: Any) -> Any:
            return _network_day(carry, key, edges, age, params)

        keys = jax.random.split(key, days)
        (state, _), counts = lax.scan(day, (state, jnp.full(agents, 4)), keys)
        ill_by_age = jax.ops.segment_sum((state > 0).astype(jnp.float32), age, num_segments=8)
        return counts, ill_by_age / jnp.bincount(age, length=8)

    ends = integers(9, agents, 2, links)
    edges = jnp.concatenate([ends, ends[::-1]], axis=1)
    state = jnp.where(jnp.arange(agents) % 200 == 0, 2, 0)
    params = {"beta": jnp.asarray(0.05), "susceptibility": 0.5 + uniform(10, 8)}
    return fn, (jax.random.PRNGKey(0), state, (edges[0], edges[1]), integers(11, 8, agents), params)


def outbreak_filter() -> Program:
    """Bootstrap particle filter of an SIR model whose transmission rate wanders."""
    particles, days = 128, 60

    def fn(key: Any, reports: Any, volatility: Any, reporting: Any) -> Any:
        def day(cloud: Any, inputs: Any) -> Any:
            key, report = inputs
            move_key, pick_key = jax.random.split(key)
            noise = jax.random.normal(move_key, (particles, 2))
            log_beta = cloud["log_beta"] + volatility * noise[:, 0]
            new = jnp.exp(log_beta) * cloud["s"] * cloud["i"] * jnp.exp(0.05 * noise[:, 1])
            s = cloud["s"] - new
            i = 0.85 * cloud["i"] + new
            expected = reporting * new * 1e4
            score = report * jnp.log(expected) - expected - lax.lgamma(report + 1)
            evidence = jax.nn.logsumexp(score) - jnp.log(particles)
            weights = jax.nn.softmax(score)
            mean = jnp.sum(weights * log_beta)
            chosen = jax.random.categorical(pick_key, score, shape=(particles,))
            cloud = jax.tree.map(lambda x: x[chosen], {"s": s, "i": i, "log_beta": log_beta})
            return cloud, (evidence, mean, 1 / jnp.sum(weights**2))

        start = {
            "s": jnp.full(particles, 0.99),
            "i": jnp.full(particles, 0.01),
            "log_beta": jnp.full(particles, jnp.log(0.25)),
        }
        keys = jax.random.split(key, days)
        _, (evidence, means, effective) = lax.scan(day, start, (keys, reports))
        return evidence.sum(), means, effective

    t = np.arange(days)
    reports = jnp.asarray(np.round(8 + 12 * np.exp(-(((t - 30) / 14.0) ** 2))))
    return fn, (jax.random.PRNGKey(1), reports, jnp.asarray(0.1), jnp.asarray(0.3))


WORKLOADS: dict[str, Callable[[], Program]] = {
    "seir-ages": seir_ages,
    "final-size": final_size,
    "renewal-gradient": renewal_gradient,
    "mobility-patches": mobility_patches,
    "contact-network": contact_network,
    "outbreak-filter": outbreak_filter,
}
