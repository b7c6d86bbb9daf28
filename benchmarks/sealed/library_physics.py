"""Optics, imaging, control theory, wave functions, stencils and evolution on trees.

Libraries: dLux, nufftax, hj_reachability, folx, kernex and hyperiax.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.sealed.common import Program, normal, uniform

__all__ = ["WORKLOADS"]


def dlux_phase_retrieval() -> Program:
    """A gradient step on the Zernike coefficients of a telescope from an image of a star."""
    import dLux as dl
    import dLux.utils as dlu

    coordinates = dlu.pixel_coords(96, 1.0)
    basis = dlu.zernike_basis(list(range(4, 16)), coordinates, 1.0)
    aperture = dlu.circle(coordinates, 0.5)
    optic = dl.BasisOptic(1e-9 * basis, aperture, jnp.zeros(12), normalise=True)
    optics = dl.AngularOpticalSystem(96, 1.0, [("pupil", optic)], 48, 0.05, oversample=2)
    wavelengths = jnp.linspace(6e-7, 7e-7, 3)

    def image(coefficients: jax.Array, position: jax.Array) -> jax.Array:
        system = optics.set("pupil.coefficients", coefficients)
        source = dl.PointSource(wavelengths, dlu.arcsec2rad(position), flux=1e5)
        return dlu.downsample(system.model(source), 2, mean=False)

    def loss(parameters: dict[str, jax.Array], data: jax.Array) -> jax.Array:
        model = image(parameters["coefficients"], parameters["position"])
        return jnp.mean((model - data) ** 2 / (model + 10.0))

    def step(parameters: dict[str, jax.Array], data: jax.Array) -> tuple[Any, jax.Array]:
        value, gradient = jax.value_and_grad(loss)(parameters, data)
        return jax.tree.map(lambda p, g: p - 1e-2 * g, parameters, gradient), value

    parameters = {"coefficients": 20.0 * normal(1, 12), "position": 0.02 * normal(2, 2)}
    data = image(30.0 * normal(3, 12), 0.02 * normal(4, 2))
    return step, (parameters, jnp.abs(data + jnp.sqrt(jnp.abs(data)) * normal(5, 48, 48)))


def nufftax_radial_reconstruction() -> Program:
    """Five conjugate gradient steps on the image of a radially sampled MRI scan."""
    from nufftax import nufft2d1, nufft2d2

    spokes, readout, size = 32, 64, 32
    angle = np.pi * np.arange(spokes) / spokes
    radius = np.linspace(-np.pi, np.pi, readout, endpoint=False)
    kx = jnp.asarray(np.outer(np.cos(angle), radius).ravel(), jnp.float32)
    ky = jnp.asarray(np.outer(np.sin(angle), radius).ravel(), jnp.float32)

    def reconstruct(kx: jax.Array, ky: jax.Array, real: jax.Array, imag: jax.Array) -> jax.Array:
        def normal_equations(image: jax.Array) -> jax.Array:
            signal = nufft2d2(kx, ky, image, eps=1e-4)
            return nufft2d1(kx, ky, signal, (size, size), eps=1e-4) / kx.size + 1e-2 * image

        backprojection = nufft2d1(kx, ky, real + 1j * imag, (size, size), eps=1e-4) / kx.size
        image, _ = jax.scipy.sparse.linalg.cg(normal_equations, backprojection, tol=0, maxiter=5)
        return jnp.abs(image)

    phantom = np.zeros((size, size), np.complex64)
    phantom[8:24, 10:22] = 1.0
    phantom[12:18, 12:16] = 0.4
    data = nufft2d2(kx, ky, jnp.asarray(phantom), eps=1e-4)
    noise = 0.1 * normal(1, 2, kx.size)
    return reconstruct, (kx, ky, data.real + noise[0], data.imag + noise[1])


def reachability_air3d() -> Program:
    """A few steps of the Hamilton-Jacobi equation of the pursuit and evasion of two aircraft."""
    import hj_reachability as hj

    dynamics = hj.systems.Air3d()
    grid = hj.Grid.from_lattice_parameters_and_boundary_conditions(
        hj.sets.Box(np.array([-6.0, -10.0, 0.0]), np.array([20.0, 10.0, 2 * np.pi])),
        (41, 31, 30),
        periodic_dims=2,
    )
    settings = hj.SolverSettings.with_accuracy(
        "high", hamiltonian_postprocessor=hj.solver.backwards_reachable_tube
    )

    def advance(values: jax.Array, target: jax.Array) -> jax.Array:
        return hj.step(settings, dynamics, grid, 0.0, values, target, progress_bar=False)

    distance = jnp.linalg.norm(grid.states[..., :2], axis=-1) - 5.0
    return advance, (jnp.asarray(distance, jnp.float32), jnp.asarray(-0.1, jnp.float32))


def folx_local_energy() -> Program:
    """Local energies of walkers of a neural wave function of beryllium by forward Laplacian."""
    import folx

    charge, electrons = 4.0, 4

    def log_psi(parameters: dict[str, jax.Array], positions: jax.Array) -> jax.Array:
        radius = jnp.sqrt(jnp.sum(positions**2, -1, keepdims=True) + 1e-6)
        h = jnp.concatenate([positions, radius], -1)
        for layer in ("first", "second"):
            mean = jnp.broadcast_to(h.mean(0, keepdims=True), h.shape)
            h = jnp.tanh(jnp.concatenate([h, mean], -1) @ parameters[layer])
        orbitals = h @ parameters["orbitals"] * jnp.exp(-radius)
        spins = orbitals.reshape(2, electrons // 2, electrons)
        up, down = spins[0, :, : electrons // 2], spins[1, :, electrons // 2 :]
        return jnp.linalg.slogdet(up)[1] + jnp.linalg.slogdet(down)[1]

    def energy(parameters: dict[str, jax.Array], walkers: jax.Array) -> jax.Array:
        kinetic = folx.ForwardLaplacianOperator(0)(lambda x: log_psi(parameters, x.reshape(-1, 3)))
        laplacian, gradient = jax.vmap(kinetic)(walkers.reshape(walkers.shape[0], -1))
        radius = jnp.linalg.norm(walkers, axis=-1)
        pairs = walkers[:, :, None] - walkers[:, None] + 10.0 * jnp.eye(electrons)[..., None]
        repulsion = jnp.triu(1.0 / jnp.linalg.norm(pairs, axis=-1), 1).sum((1, 2))
        potential = repulsion - charge * (1.0 / radius).sum(-1)
        return potential - 0.5 * (laplacian + jnp.sum(gradient**2, -1))

    parameters = {
        "first": 0.5 * normal(1, 8, 32),
        "second": 0.2 * normal(2, 64, 32),
        "orbitals": jnp.eye(32, electrons) + 0.3 * normal(3, 32, electrons),
    }
    return energy, (parameters, normal(4, 12, electrons, 3))


def kernex_heat_inversion() -> Program:
    """The gradient by the conductivity of a plate of a misfit after fifty explicit steps."""
    import kernex as kex

    @kex.kmap(kernel_size=(3, 3), padding="same", relative=True)
    def laplacian(t: Any) -> Any:
        return t[1, 0] + t[-1, 0] + t[0, 1] + t[0, -1] - 4 * t[0, 0]

    def misfit(conductivity: jax.Array, start: jax.Array, target: jax.Array) -> jax.Array:
        def step(plate: jax.Array, _: None) -> tuple[jax.Array, None]:
            plate = plate + 0.2 * jax.nn.sigmoid(conductivity) * laplacian(plate)
            return plate.at[:, 0].set(1.0), None

        return jnp.mean((jax.lax.scan(step, start, None, length=50)[0] - target) ** 2)

    arrays = (normal(1, 64, 64), uniform(2, 64, 64), uniform(3, 64, 64))
    return jax.value_and_grad(misfit), arrays


def hyperiax_phylogeny() -> Program:
    """The likelihood of traits under Brownian motion on a tree of 256 species, by pruning."""
    import hyperiax as hx

    topology = hx.symmetric_topology(depth=8, degree=2)
    leaves = np.asarray(topology.is_leaf)
    schema = {"mean": (4,), "variance": (), "score": (), "length": ()}

    def message(child: Any) -> dict[str, jax.Array]:
        spread = (child.variance + child.length)[..., None]
        return {
            "spread": spread,
            "precision": 1.0 / spread,
            "weighted": child.mean / spread,
            "square": child.mean**2 / spread,
            "score": child.score[..., None],
        }

    fields = ("mean", "variance", "score")

    @hx.up(reads_children=(*fields, "length"), writes=fields)
    def prune(node: Any, children: Any, params: dict[str, jax.Array]) -> dict[str, jax.Array]:
        messages = children.map(message)
        precision, mean = messages.precision.sum(0), messages.weighted.sum(0)
        rate = jnp.exp(params["log_rate"])
        contrast = (messages.square.sum(0) - mean**2 / precision) / rate
        density = -0.5 * (contrast + jnp.log(rate * messages.spread.sum(0))).sum(-1)
        score = messages.score.sum(0)[..., 0] + density
        return {"mean": mean / precision, "variance": 1.0 / precision[..., 0], "score": score}

    def likelihood(log_rate: jax.Array, traits: jax.Array, lengths: jax.Array) -> jax.Array:
        tree = hx.Tree.empty(topology, schema).set(length=lengths)
        tree = prune(tree.at[leaves].set(mean=traits), params={"log_rate": log_rate})
        return -tree.score[0] / leaves.sum()

    traits = normal(1, int(leaves.sum()), 4)
    lengths = 0.1 + uniform(2, leaves.size)
    return jax.value_and_grad(likelihood), (0.3 * normal(3, 4), traits, lengths)


WORKLOADS: dict[str, Callable[[], Program]] = {
    "dlux-phase-retrieval": dlux_phase_retrieval,
    "nufftax-radial-reconstruction": nufftax_radial_reconstruction,
    "reachability-air3d": reachability_air3d,
    "folx-local-energy": folx_local_energy,
    "kernex-heat-inversion": kernex_heat_inversion,
    "hyperiax-phylogeny": hyperiax_phylogeny,
}
