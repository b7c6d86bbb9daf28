"""Open quantum systems, tensor networks, likelihoods of particle physics and spectral lines."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.third_party.common import Builder, Program


def dynamiqs_mesolve_driven_cavity() -> Program:
    """Photon number of a driven cavity with losses, from the Lindblad equation."""
    import dynamiqs as dq

    a = dq.destroy(24)

    def run(eps, t):
        H = 0.2 * dq.dag(a) @ a + eps * (a + dq.dag(a))
        r = dq.mesolve(
            H,
            [0.5 * a],
            dq.coherent(24, 1.0),
            t,
            exp_ops=[dq.dag(a) @ a],
            method=dq.method.Tsit5(),
            progress_meter=False,
        )
        return r.expects, r.states.to_jax()[-1]

    return run, (jnp.float32(0.7), jnp.linspace(0.0, 5.0, 21))


def dynamiqs_sesolve_transmon_pulse_grad() -> Program:
    """Infidelity of a transmon pulse, and its gradient in the amplitudes."""
    import dynamiqs as dq

    a = dq.destroy(6, layout=dq.dense)
    t = jnp.linspace(0.0, 4.0, 41)

    def run(amp, t):
        def infid(amp):
            H0 = dq.constant(-0.3 * dq.dag(a) @ dq.dag(a) @ a @ a)
            H = H0 + dq.pwc(t, amp, a + dq.dag(a))
            r = dq.sesolve(
                H,
                dq.fock(6, 0),
                t,
                method=dq.method.Expm(),
                progress_meter=False,
                gradient=dq.gradient.Direct(),
            )
            return 1 - dq.fidelity(r.final_state, dq.fock(6, 1))

        return jax.value_and_grad(infid)(amp)

    return run, (jnp.full(40, 0.2), t)


def dynamiqs_wigner_cat() -> Program:
    """Wigner function of a cat state."""
    import dynamiqs as dq

    def run(al):
        psi = (dq.coherent(32, al) + dq.coherent(32, -al)).unit()
        return dq.wigner(psi, xmax=4.0, npixels=81)[2]

    return run, (jnp.float32(1.8),)


def jaxquantum_mesolve_kerr_cat() -> Program:
    """Density matrix of a Kerr-cat oscillator with losses."""
    import jaxquantum as jqt

    N = 16

    def run(e2, t):
        a = jqt.destroy(N)
        H = -0.3 * a.dag() @ a.dag() @ a @ a + e2 * (a @ a + a.dag() @ a.dag())
        rho = jqt.ket2dm(jqt.basis(N, 0))
        s = jqt.mesolve(
            H,
            rho,
            t,
            c_ops=jqt.Qarray.from_list([0.2 * a]),
            solver_options=jqt.SolverOptions.create(progress_meter=False),
        )
        return s.data[-1]

    return run, (jnp.array(0.6), jnp.linspace(0.0, 1.5, 16))


def tensornetwork_mps_expectation_grad() -> Program:
    """Log norm of a matrix product state, and its gradient."""
    import tensornetwork as tn

    tn.set_default_backend("jax")
    N, D = 16, 24
    rng = np.random.default_rng(55)
    ts = [
        jnp.asarray(
            rng.normal(size=(1 if i == 0 else D, 2, 1 if i == N - 1 else D)) * 0.2, jnp.float32
        )
        for i in range(N)
    ]

    def run(ts):
        def energy(ts):
            top = [tn.Node(t) for t in ts]
            bot = [tn.Node(t) for t in ts]
            for i in range(N - 1):
                tn.connect(top[i][2], top[i + 1][0])
                tn.connect(bot[i][2], bot[i + 1][0])
            tn.connect(top[0][0], bot[0][0])
            tn.connect(top[-1][2], bot[-1][2])
            for i in range(N):
                tn.connect(top[i][1], bot[i][1])
            c = top[0] @ bot[0]
            for i in range(1, N):
                c = c @ top[i] @ bot[i]
            return jnp.log(c.tensor)

        return jax.value_and_grad(energy)(ts)

    return run, (ts,)


def tensornetwork_tebd_two_site_gates() -> Program:
    """A sweep of two-site gates over a matrix product state, with truncation."""
    import scipy.linalg as sl
    import tensornetwork as tn

    tn.set_default_backend("jax")
    N, D = 10, 12
    rng = np.random.default_rng(56)
    ts = [
        jnp.asarray(
            rng.normal(size=(1 if i == 0 else D, 2, 1 if i == N - 1 else D)) * 0.4, jnp.float32
        )
        for i in range(N)
    ]
    X = np.array([[0, 1], [1, 0.0]])
    Z = np.diag([1.0, -1])
    h = np.kron(Z, Z) + 0.5 * np.kron(X, np.eye(2))
    g = jnp.asarray(sl.expm(-0.1 * h).reshape(2, 2, 2, 2), jnp.float32)

    def run(ts, g):
        ts = list(ts)
        svs = []
        for i in range(N - 1):
            a, b, gt = tn.Node(ts[i]), tn.Node(ts[i + 1]), tn.Node(g)
            tn.connect(a[2], b[0])
            tn.connect(a[1], gt[2])
            tn.connect(b[1], gt[3])
            left, right, o1, o2 = a[0], b[2], gt[0], gt[1]
            c = tn.contractors.greedy([a, b, gt], output_edge_order=[left, o1, o2, right])
            u, sv, v, _ = tn.split_node_full_svd(c, [left, o1], [o2, right], max_singular_values=D)
            ts[i] = u.tensor
            ts[i + 1] = (sv @ v).tensor
            svs.append(jnp.diag(sv.tensor))
        return tuple(x / jnp.linalg.norm(x) for x in svs)

    return run, (ts, g)


def pyhf_nll_grad_hessian() -> Program:
    """Likelihood of a histogram model with correlated background, with gradient and Hessian."""
    import pyhf

    pyhf.set_backend("jax", precision="64b")
    rng = np.random.default_rng(57)
    nb = 20
    s = rng.uniform(1, 5, nb)
    b = rng.uniform(40, 60, nb)
    model = pyhf.simplemodels.correlated_background(
        list(s), list(b), list(b * 1.08), list(b * 0.93)
    )
    data = jnp.asarray(list(np.round(b + s)) + model.config.auxdata)

    def run(p, data):
        def f(p):
            return -2 * model.logpdf(p, data)[0]

        return f(p), jax.grad(f)(p), jax.hessian(f)(p)

    return run, (jnp.asarray(model.config.suggested_init()), data)


def _channel(rng, i):
    """Signal and background in twelve bins, with their uncertainties."""
    b = rng.uniform(30, 60, 12)
    signal = {
        "name": "sig",
        "data": list(rng.uniform(1, 6, 12)),
        "modifiers": [{"name": "mu", "type": "normfactor", "data": None}],
    }
    shape = {"hi_data": list(b * 1.06), "lo_data": list(b * 0.95)}
    background = {
        "name": "bkg",
        "data": list(b),
        "modifiers": [
            {"name": f"uncorr{i}", "type": "shapesys", "data": list(b * 0.05)},
            {"name": "lumi", "type": "normsys", "data": {"hi": 1.03, "lo": 0.97}},
            {"name": "jes", "type": "histosys", "data": shape},
        ],
    }
    return {"name": f"c{i}", "samples": [signal, background]}


def pyhf_multichannel_logpdf_toys() -> Program:
    """Likelihoods and gradients of 200 pseudo-experiments in four channels."""
    import pyhf

    pyhf.set_backend("jax", precision="64b")
    rng = np.random.default_rng(58)
    channels = [_channel(rng, i) for i in range(4)]
    model = pyhf.Model({"channels": channels})
    p0 = jnp.asarray(model.config.suggested_init())
    exp = np.asarray(model.expected_data(p0))
    toys = jnp.asarray(rng.poisson(exp, (200, exp.size)).astype(float))

    def run(p, toys):
        def f(d):
            return jax.value_and_grad(lambda p: model.logpdf(p, d)[0])(p)

        return jax.vmap(f)(toys)

    return run, (p0 + 0.01, toys)


def exojax_voigt_cross_section_grad() -> Program:
    """Molecular cross section from sixty Voigt lines, and its gradient."""
    from exojax.opacity.initspec import init_lpf
    from exojax.opacity.lpf.lpf import xsvector

    rng = np.random.default_rng(125)
    nl = 60
    nu = np.linspace(4000, 4010, 1000)
    lines = np.sort(rng.uniform(4000, 4010, nl))
    num = jnp.asarray(init_lpf(lines, nu), jnp.float32)

    def run(num, sg, gm, S):
        def f(sg, gm):
            return (xsvector(num, sg, gm, S) ** 2).mean()

        return xsvector(num, sg, gm, S), jax.grad(f, (0, 1))(sg, gm)

    def single(a):
        return jnp.asarray(a, jnp.float32)

    return run, (
        num,
        single(np.full(nl, 0.02)),
        single(rng.uniform(0.01, 0.1, nl)),
        single(rng.random(nl)),
    )


def exojax_emission_transfer() -> Program:
    """Emission spectrum of a layered atmosphere, and its gradient in temperature."""
    from exojax.rt.planck import piBarr
    from exojax.rt.rtransfer import rtrun_emis_pureabs_fbased2st

    nu = jnp.linspace(4000.0, 4100.0, 20000)
    T = jnp.linspace(500.0, 1800.0, 80)
    d = jnp.asarray(
        10 ** np.linspace(-4, 0.5, 80)[:, None]
        * np.random.default_rng(126).lognormal(0, 0.5, (80, 20000))
        * 0.05,
        jnp.float32,
    )

    def run(T, d, nu):
        def f(T):
            return rtrun_emis_pureabs_fbased2st(d, piBarr(T, nu))

        return f(T), jax.grad(lambda T: f(T).sum())(T)

    return run, (T, d, nu)


WORKLOADS: dict[str, Builder] = {
    "dynamiqs-mesolve-driven-cavity": dynamiqs_mesolve_driven_cavity,
    "dynamiqs-sesolve-transmon-pulse-grad": dynamiqs_sesolve_transmon_pulse_grad,
    "dynamiqs-wigner-cat": dynamiqs_wigner_cat,
    "tensornetwork-mps-expectation-grad": tensornetwork_mps_expectation_grad,
    "tensornetwork-tebd-two-site-gates": tensornetwork_tebd_two_site_gates,
    "exojax-voigt-cross-section-grad": exojax_voigt_cross_section_grad,
    "exojax-emission-transfer": exojax_emission_transfer,
}

WORKLOADS_X64: dict[str, Builder] = {
    "jaxquantum-mesolve-kerr-cat": jaxquantum_mesolve_kerr_cat,
    "pyhf-nll-grad-hessian": pyhf_nll_grad_hessian,
    "pyhf-multichannel-logpdf-toys": pyhf_multichannel_logpdf_toys,
}
