"""Models of belief and of brains, factor graphs, tensor networks, robots and reactions."""

from __future__ import annotations

import os

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.third_party.common import Builder, Program


def pyhgf_binary_filter_grad() -> Program:
    """Surprise of a three-level filter at 320 binary outcomes, and its gradient."""
    import types

    from pyhgf import load_data
    from pyhgf.model import Network
    from pyhgf.response import binary_softmax_inverse_temperature

    u, y = load_data("binary")
    network = (
        Network()
        .add_nodes(kind="binary-state")
        .add_nodes(kind="continuous-state", value_children=0)
        .add_nodes(kind="continuous-state", volatility_children=1)
        .create_belief_propagation_fn()
    )
    attributes, edges, _ = network.get_network()
    outcomes = jnp.asarray(u, jnp.float32)[:, None]

    def run(parameters, outcomes, responses):
        def surprise(p):
            nodes = {k: dict(v) for k, v in attributes.items()}
            nodes[1]["tonic_volatility"] = p["volatility"][0]
            nodes[2]["tonic_volatility"] = p["volatility"][1]
            n = outcomes.shape[0]
            inputs = (outcomes,), (jnp.ones(n, jnp.int32),), jnp.ones(n), None
            _, trajectories = jax.lax.scan(network.scan_fn, nodes, inputs)
            fitted = types.SimpleNamespace(node_trajectories=trajectories, edges=edges)
            each = binary_softmax_inverse_temperature(fitted, responses, p["temperature"])
            return each.sum(), trajectories[1]["mean"]

        (value, beliefs), grads = jax.value_and_grad(surprise, has_aux=True)(parameters)
        return value, grads, beliefs

    parameters = {"volatility": jnp.array([-3.0, -4.0]), "temperature": jnp.array(4.0)}
    return run, (parameters, outcomes, jnp.asarray(y, jnp.float32))


def pymdp_tmaze_rollout() -> Program:
    """Eight agents that look for the reward of a maze for ten steps."""
    from pymdp.agent import Agent
    from pymdp.envs import SimplifiedTMaze
    from pymdp.envs.rollout import rollout

    env = SimplifiedTMaze(reward_condition=0, cue_validity=0.9, reward_probability=0.9)
    liked = jnp.array([0.0, 2.0, -2.0])
    agent = Agent(
        A=env.A,
        B=env.B,
        C=[jnp.zeros(env.A[0].shape[0]), liked],
        D=[env.D[0], jnp.array([0.5, 0.5])],
        A_dependencies=env.A_dependencies,
        B_dependencies=env.B_dependencies,
        policy_len=2,
        batch_size=8,
        action_selection="stochastic",
    )
    env_params = env.generate_env_params(batch_size=8)
    arrays, static = jax.tree.flatten(agent)

    def run(arrays, env_params, key):
        walker = jax.tree.unflatten(static, arrays)
        _, info = rollout(walker, env, 10, key, env_params=env_params)
        return {k: info[k] for k in ("qs", "action", "observation", "qpi", "neg_efe")}

    return run, (arrays, env_params, jax.random.PRNGKey(1))


def pgmax_ising_grad() -> Program:
    """Marginals of an Ising grid of 16 by 16 by belief propagation, and a gradient."""
    from types import SimpleNamespace
    from unittest import mock

    import jax.extend.backend
    from pgmax import fgraph, fgroup, infer, vgroup

    n = 16
    spins = vgroup.NDVarArray(num_states=2, shape=(n, n))
    graph = fgraph.FactorGraph(variable_groups=spins)
    pairs = [
        [spins[i, j], spins[k % n, m % n]]
        for i in range(n)
        for j in range(n)
        for k, m in ((i + 1, j), (i, j + 1))
    ]
    factors = fgroup.PairwiseFactorGroup(
        variables_for_factors=pairs,
        log_potential_matrix=0.3 * np.array([[1.0, -1.0], [-1.0, 1.0]]),
    )
    graph.add_factors(factors)
    # Its context asks for the platform by a name that jax has dropped.
    with mock.patch.object(jax, "lib", SimpleNamespace(xla_bridge=jax.extend.backend), create=True):
        bp = infer.build_inferer(graph.bp_state, backend="bp")
    rng = np.random.default_rng(130)
    field = jnp.asarray(0.3 * rng.gumbel(size=(n, n, 2)), jnp.float32)
    seen = jnp.asarray(rng.integers(0, 2, (n, n)))

    def run(field, seen):
        def loss(field):
            arrays = bp.init(evidence_updates={spins: field})
            arrays = bp.run(arrays, num_iters=30, damping=0.5, temperature=1.0)
            marginals = infer.get_marginals(bp.get_beliefs(arrays))[spins]
            picked = jnp.take_along_axis(marginals, seen[..., None], -1)
            return -jnp.log(picked).mean(), marginals

        return jax.value_and_grad(loss, has_aux=True)(field)

    return run, (field, seen)


def _vbjax():
    """The library, kept from asking for one host device per core."""
    os.environ.setdefault("XLA_FLAGS", "")
    import vbjax

    return vbjax


def vbjax_mass_network_bold() -> Program:
    """Noisy Montbrio-Pazo-Roxin masses of 64 regions, and their blood-oxygen signal."""
    vb = _vbjax()
    n, steps, dt = 64, 600, 0.01
    rng = np.random.default_rng(131)
    weights = np.abs(rng.normal(size=(n, n)))
    weights = jnp.asarray((weights + weights.T) / n, jnp.float32)

    def network(x, p):
        k, weights, theta = p
        return vb.mpr_dfun(x, (k * weights @ x[0], 0.0), theta)

    _, loop = vb.make_sde(dt=dt, dfun=network, gfun=0.05, adhoc=vb.mpr_r_positive)
    bold, bold_step, bold_sample = vb.make_bold((n,), dt, vb.bold_default_theta)

    def run(k, weights, x0, noise):
        xs = loop(x0, noise, (k, weights, vb.mpr_default_theta))

        def chunk(state, r):
            state, _ = jax.lax.scan(lambda s, v: (bold_step(s, v), None), state, r)
            return bold_sample(state)

        _, signal = jax.lax.scan(chunk, bold, xs[:, 0].reshape(-1, 50, n))
        return xs[-1], signal, jnp.corrcoef(xs[:, 0].T)

    x0 = jnp.stack([jnp.full(n, 0.1), jnp.full(n, -2.0)])
    noise = jnp.asarray(rng.normal(size=(steps, 2, n)), jnp.float32)
    return run, (jnp.array(0.1), weights, x0, noise)


def vbjax_delayed_coupling_grad() -> Program:
    """Gradient of the rates of 16 delayed neural masses by their coupling."""
    vb = _vbjax()
    n, steps, dt = 16, 200, 0.05
    rng = np.random.default_rng(132)
    weights = jnp.asarray(np.abs(rng.normal(size=(n, n))) / n, jnp.float32)
    lengths = jnp.asarray(rng.uniform(5.0, 20.0, (n, n)), jnp.float32)
    helper = vb.make_delay_helper(weights, lengths, dt=dt, v_c=10.0)
    history = int(helper.max_lag)

    def network(buf, x, t, p):
        k, theta = p
        return vb.mpr_dfun(x, k * vb.delay_apply(helper, t, buf[:, :1]).repeat(2, 0), theta)

    _, loop = vb.make_sdde(dt, history, network, gfun=0.02, adhoc=vb.mpr_r_positive)

    def run(k, eta, buf):
        def loss(p):
            theta = vb.mpr_default_theta._replace(eta=p[1])
            _, xs = loop(buf, (p[0], theta))
            return ((xs[:, 0].mean(0) - 0.1) ** 2).mean(), xs[-1]

        return jax.value_and_grad(loss, has_aux=True)((k, eta))

    buf = rng.normal(size=(history + steps + 1, 2, n))
    buf[: history + 1] = np.array([0.1, -2.0])[:, None]
    return run, (jnp.array(0.5), jnp.full(n, -5.0), jnp.asarray(buf, jnp.float32))


# Autoray 0.8.4 shares one namespace among all backends named by a string, so that contractions
# of jax arrays may end in numpy; the two functions are named here.
_CONTRACT = {"optimize": "greedy", "implementation": (jnp.einsum, jnp.tensordot)}


def quimb_matrix_product_energy_grad() -> Program:
    """Energy of a Heisenberg chain of 12 sites in a matrix product state, and its gradient."""
    import quimb.tensor as qtn

    n = 12
    psi = qtn.MPS_rand_state(n, bond_dim=8, seed=1, dtype="float32")
    ham = qtn.MPO_ham_heis(n)
    ham.apply_to_arrays(lambda a: jnp.asarray(np.real(a), jnp.float32))
    psi.apply_to_arrays(lambda a: jnp.asarray(a, jnp.float32))
    params, skeleton = qtn.pack(psi)

    def run(params):
        def energy(params):
            psi = qtn.unpack(params, skeleton)
            bra, mpo, ket = qtn.tensor_network_align(psi.H, ham, psi)
            norm = (psi.H & psi).contract(..., **_CONTRACT)
            return (bra & mpo & ket).contract(..., **_CONTRACT) / norm

        return jax.value_and_grad(energy)(params)

    return run, (params,)


def jaxgb_galactic_binaries() -> Program:
    """Response of a space antenna to 32 galactic binaries for twelve days."""
    from jaxgb.jaxgb import JaxGB
    from lisaorbits import EqualArmlengthOrbits

    antenna = JaxGB(EqualArmlengthOrbits(), t_obs=float(2**20), n=256)
    for name in ("position", "r", "arm_length", "fstar", "window"):
        setattr(antenna, name, jnp.asarray(getattr(antenna, name), jnp.float32))
    rng = np.random.default_rng(133)
    n = 32
    bins = rng.integers(1000, 3000, n) + rng.integers(-31, 32, n) / 64
    columns = [
        bins / 2**20,
        rng.uniform(-1e-15, 1e-15, n),
        rng.uniform(0.1, 1.0, n),
        rng.uniform(0.0, 2 * np.pi, n),
        rng.uniform(-1.5, 1.5, n),
        rng.uniform(0.0, np.pi, n),
        rng.uniform(0.0, np.pi, n),
        rng.uniform(0.0, 2 * np.pi, n),
    ]

    def run(sources):
        tdi = antenna.get_tdi(sources, tdi_generation=1.5, tdi_combination="XYZ")
        return tdi, antenna.get_link_responses(sources), antenna.get_kmin(sources[:, 0])

    return run, (jnp.asarray(np.stack(columns, 1), jnp.float32),)


def jaxued_maze_rollout() -> Program:
    """Sixty-four random mazes and their mutants, walked at random for 128 steps."""
    from jaxued.environments.maze import Maze, make_level_generator
    from jaxued.environments.maze.util import make_level_mutator

    env = Maze(max_height=13, max_width=13, agent_view_size=5, normalize_obs=True)
    sample = make_level_generator(env.max_height, env.max_width, 60)
    mutate = make_level_mutator(20)
    n, steps = 64, 128

    def walk(key, level):
        key, sub = jax.random.split(key)
        obs, state = env.reset_to_level(sub, level, env.default_params)

        def step(state, key):
            move, sub = jax.random.split(key)
            action = jax.random.choice(move, 3, p=jnp.array([0.25, 0.25, 0.5]))
            obs, state, reward, done, _ = env.step(sub, state, action, env.default_params)
            return state, (obs.image.mean(), reward, done)

        state = jax.tree.map(jnp.asarray, state)
        state, out = jax.lax.scan(step, state, jax.random.split(key, steps))
        return obs.image, state, out

    def run(key):
        k1, k2, k3 = jax.random.split(key, 3)
        levels = jax.vmap(sample)(jax.random.split(k1, n))
        mutants = jax.vmap(mutate, (0, 0, None))(jax.random.split(k2, n), levels, 20)
        both = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), levels, mutants)
        return both.wall_map, jax.vmap(walk)(jax.random.split(k3, 2 * n), both)

    return run, (jax.random.PRNGKey(7),)


def tensorcircuit_variational_ising_grad() -> Program:
    """Energies of eight variational circuits on 8 qubits in an Ising chain, and gradients."""
    import tensorcircuit as tc

    tc.set_backend("jax")
    tc.set_dtype("complex64")
    n, layers = 8, 3

    def energy(params):
        c = tc.Circuit(n)
        for i in range(n):
            c.h(i)
        for layer in range(layers):
            for i in range(n - 1):
                c.rzz(i, i + 1, theta=params[2 * layer, i])
            for i in range(n):
                c.rx(i, theta=params[2 * layer + 1, i])
        e = 0.0
        for i in range(n - 1):
            e += c.expectation_ps(z=[i, i + 1])
        for i in range(n):
            e -= c.expectation_ps(x=[i])
        return jnp.real(e)

    params = np.random.default_rng(134).normal(size=(8, 2 * layers, n))
    return jax.vmap(jax.value_and_grad(energy)), (jnp.asarray(params, jnp.float32),)


def qujax_variational_grad() -> Program:
    """Energy of a parametrised circuit of 10 qubits in a Heisenberg chain, and its gradient."""
    import qujax

    n, depth = 10, 4
    gates, qubits, indices = [], [], []
    k = 0
    for layer in range(depth):
        for i in range(n):
            gates += ["Ry", "Rz"]
            qubits += [[i], [i]]
            indices += [[k], [k + 1]]
            k += 2
        for i in range(layer % 2, n - 1, 2):
            gates.append("CZ")
            qubits.append([i, i + 1])
            indices.append([])
    state = qujax.get_params_to_statetensor_func(gates, qubits, indices)
    terms = [[p, p] for p in "XYZ" for _ in range(n - 1)]
    sites = [[i, i + 1] for _ in "XYZ" for i in range(n - 1)]
    measure = qujax.get_statetensor_to_expectation_func(terms, sites, [1.0] * len(terms))

    def run(params):
        return jax.value_and_grad(lambda p: measure(state(p)))(params)

    return run, (jnp.asarray(np.random.default_rng(135).uniform(0, 2, k), jnp.float32),)


def frax_operational_space_control() -> Program:
    """Arm of seven joints that follows a circle by torques for 200 steps."""
    from frax.robots.kuka_iiwa import default_q, load_iiwa

    robot = load_iiwa()
    dt = 0.005

    def run(q, v, centre):
        def step(carry, t):
            q, v = carry
            M, M_inv, G, C, J, T = robot.torque_control_matrices(q, v)
            goal = centre + 0.1 * jnp.array([0.0, jnp.sin(2 * t), jnp.cos(2 * t) - 1.0])
            J = J[:3]
            force = jnp.linalg.solve(
                J @ M_inv @ J.T + 1e-4 * jnp.eye(3), 50.0 * (goal - T[:3, 3]) - 14.0 * (J @ v)
            )
            tau = J.T @ force + G + C - 2.0 * M @ v
            a = robot.forward_dynamics(q, v, tau, None)
            v = v + dt * a
            q = robot.integrate(q, v, dt)
            return (q, v), (T[:3, 3], goal, robot.ee_manipulability_index(q))

        return jax.lax.scan(step, (q, v), jnp.arange(200) * dt)

    q = jnp.asarray(default_q, jnp.float32)
    return run, (q, jnp.zeros(7), robot.ee_transform(q)[:3, 3])


def crn_gene_cascade_gillespie() -> Program:
    """Thirty-two stochastic runs of a cascade of two genes, reaction by reaction."""
    from crn_jax.gillespie import simulate_trajectory
    from crn_jax.models import linear_cascade as model
    from crn_jax.types import State

    propensities = model.propensities_fn(model.Params())

    def one(key, x0):
        state = State(time=jnp.array(0.0), x=x0, next_reaction_time=jnp.array(jnp.inf))
        states = simulate_trajectory(
            key,
            state,
            timestep=1.0,
            n_steps=40,
            compute_propensities_fn=propensities,
            apply_reaction_fn=model.apply_reaction,
        )
        return states.x, states.time

    def run(key, x0):
        return jax.vmap(one)(jax.random.split(key, x0.shape[0]), x0)

    x0 = np.random.default_rng(137).integers(0, 60, (32, 2))
    return run, (jax.random.PRNGKey(3), jnp.asarray(x0, jnp.float32))


WORKLOADS: dict[str, Builder] = {
    "pyhgf-binary-filter-grad": pyhgf_binary_filter_grad,
    "pymdp-tmaze-rollout": pymdp_tmaze_rollout,
    "pgmax-ising-grad": pgmax_ising_grad,
    "vbjax-mass-network-bold": vbjax_mass_network_bold,
    "vbjax-delayed-coupling-grad": vbjax_delayed_coupling_grad,
    "quimb-matrix-product-energy-grad": quimb_matrix_product_energy_grad,
    "jaxgb-galactic-binaries": jaxgb_galactic_binaries,
    "jaxued-maze-rollout": jaxued_maze_rollout,
    "tensorcircuit-variational-ising-grad": tensorcircuit_variational_ising_grad,
    "qujax-variational-grad": qujax_variational_grad,
    "frax-operational-space-control": frax_operational_space_control,
    "crn-gene-cascade-gillespie": crn_gene_cascade_gillespie,
}
