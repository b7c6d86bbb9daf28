"""Pictures: rendering and filters."""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.ndimage import map_coordinates

from benchmarks.everyday.common import Program, Sizes, normal, picture, uniform


def ray_march(size: int, steps: int) -> Program:
    """Spheres, a smooth union and a floor, marched until all are hit; normals by gradient, and shadows."""

    def sdf(p: jax.Array) -> jax.Array:
        a = jnp.linalg.norm(p - jnp.array([0.0, 0.2, 0.0])) - 0.7
        b = jnp.linalg.norm(p - jnp.array([0.8, 0.0, 0.4])) - 0.5
        h = jnp.clip(0.5 + 0.5 * (b - a) / 0.3, 0.0, 1.0)
        return jnp.minimum(b * (1 - h) + a * h - 0.3 * h * (1 - h), p[1] + 0.6)

    def march(origin: jax.Array, direction: jax.Array) -> jax.Array:
        def going(state: Any) -> Any:
            t, distance, i = state
            return (distance > 1e-3) & (t < 20.0) & (i < steps)

        def step(state: Any) -> Any:
            t, _, i = state
            distance = sdf(origin + t * direction)
            return t + distance, distance, i + 1

        return lax.while_loop(going, step, (jnp.float32(0.02), jnp.float32(1.0), 0))[0]

    def shade(direction: jax.Array) -> jax.Array:
        origin, light = jnp.array([0.0, 0.6, -3.0]), jnp.array([0.5, 0.7, -0.5]) / jnp.sqrt(0.99)
        t = march(origin, direction)
        p = origin + t * direction
        normal = jax.grad(sdf)(p)
        normal = normal / (jnp.linalg.norm(normal) + 1e-6)
        lit = march(p + 0.02 * normal, light) > 10.0
        color = jnp.maximum(jnp.dot(normal, light), 0.0) * jnp.where(lit, 1.0, 0.3) + 0.1
        fog = jnp.exp(-0.1 * t)
        return jnp.where(t < 20.0, color * fog + (1 - fog) * 0.7, 0.7)

    def render(width: jax.Array) -> jax.Array:
        line = jnp.linspace(-1.0, 1.0, size)
        x, y = jnp.meshgrid(line, -line)
        d = jnp.stack([x, y, jnp.full_like(x, 2.0) * width], axis=-1)
        d = d / jnp.linalg.norm(d, axis=-1, keepdims=True)
        return jax.vmap(jax.vmap(shade))(d)

    return render, (jnp.float32(1.0),)


def triangles(size: int, count: int) -> Program:
    """Rays against all triangles, after Moller and Trumbore, one triangle at a time; Lambert's shading."""

    def render(corners: jax.Array, colors: jax.Array, eye: jax.Array) -> jax.Array:
        x, y = jnp.meshgrid(jnp.linspace(-1, 1, size), jnp.linspace(1, -1, size))
        d = jnp.stack([x, y, jnp.ones_like(x)], -1).reshape(-1, 3)
        d = d / jnp.linalg.norm(d, axis=1, keepdims=True)

        def visit(state: Any, item: Any) -> Any:
            nearest, image = state
            (a, b, c), color = item
            e1, e2 = b - a, c - a
            h = jnp.cross(d, e2)
            det = h @ e1
            inverse = jnp.where(
                jnp.abs(det) > 1e-7, 1.0 / jnp.where(jnp.abs(det) > 1e-7, det, 1.0), 0.0
            )
            s = eye - a
            u = inverse * (h @ s)
            q = jnp.cross(s, e1)
            v, t = inverse * (d @ q), inverse * jnp.dot(e2, q)
            hit = (u >= 0) & (v >= 0) & (u + v <= 1) & (t > 1e-4) & (t < nearest)
            normal = jnp.cross(e1, e2)
            light = jnp.abs(d @ (normal / jnp.linalg.norm(normal)))
            image = jnp.where(hit[:, None], color[None] * (0.2 + 0.8 * light[:, None]), image)
            return (jnp.where(hit, t, nearest), image), None

        start = (jnp.full(size * size, 1e9), jnp.zeros((size * size, 3)))
        return lax.scan(visit, start, (corners, colors))[0][1].reshape(size, size, 3)

    place = normal(count, 1, 3) + jnp.asarray([0.0, 0.0, 5.0])
    return render, (
        place + normal(count, 3, 3, seed=1, scale=0.5),
        uniform(count, 3),
        jnp.zeros(3, jnp.float32),
    )


def julia(size: int, steps: int) -> Program:
    """Smooth escape times of a Julia set in complex numbers, coloured by cosines."""

    def render(c: jax.Array) -> jax.Array:
        line = jnp.linspace(-1.5, 1.5, size)
        z = line[None, :] + 1j * line[:, None]

        def step(_: Any, state: Any) -> Any:
            z, count = state
            inside = jnp.abs(z) < 4.0
            return jnp.where(inside, z * z + (c[0] + 1j * c[1]), z), count + inside

        z, count = lax.fori_loop(0, steps, step, (z, jnp.zeros(z.shape, jnp.int32)))
        smooth = count + 1 - jnp.log2(jnp.log(jnp.maximum(jnp.abs(z), 2.0)))
        phase = smooth[..., None] / 20.0 + jnp.array([0.0, 0.33, 0.67])
        return jnp.where((count < steps)[..., None], 0.5 + 0.5 * jnp.cos(2 * jnp.pi * phase), 0.0)

    return render, (jnp.asarray([-0.8, 0.156], jnp.float32),)


def bilateral(size: int, radius: int) -> Program:
    """An edge-preserving filter over shifted windows, then unsharp masking."""

    def run(image: jax.Array) -> jax.Array:
        padded = jnp.pad(image, radius, mode="reflect")
        total, weights = jnp.zeros_like(image), jnp.zeros_like(image)
        for dy in range(-radius, radius + 1):
            for dx in range(-radius, radius + 1):
                part = padded[radius + dy : radius + dy + size, radius + dx : radius + dx + size]
                w = jnp.exp(
                    -(dx * dx + dy * dy) / (2.0 * radius**2) - (part - image) ** 2 / (2 * 0.1**2)
                )
                total, weights = total + w * part, weights + w
        smooth = total / weights
        return jnp.clip(smooth + 1.5 * (image - smooth), 0.0, 1.0)

    return run, (picture(size),)


def canny(size: int, steps: int) -> Program:
    """Blur, Sobel's gradient, suppression along its direction, and hysteresis by dilation."""
    taps = np.exp(-0.5 * (np.arange(-2, 3) / 1.4) ** 2)

    def run(image: jax.Array) -> Any:
        kernel = jnp.asarray(taps / taps.sum(), jnp.float32)
        blurred = jax.vmap(lambda r: jnp.convolve(r, kernel, mode="same"))(image)
        blurred = jax.vmap(lambda r: jnp.convolve(r, kernel, mode="same"), 1, 1)(blurred)
        p = jnp.pad(blurred, 1, mode="edge")
        gx = (p[:-2, 2:] + 2 * p[1:-1, 2:] + p[2:, 2:]) - (
            p[:-2, :-2] + 2 * p[1:-1, :-2] + p[2:, :-2]
        )
        gy = (p[2:, :-2] + 2 * p[2:, 1:-1] + p[2:, 2:]) - (
            p[:-2, :-2] + 2 * p[:-2, 1:-1] + p[:-2, 2:]
        )
        strength = jnp.hypot(gx, gy)
        angle = jnp.mod(jnp.rad2deg(jnp.arctan2(gy, gx)), 180.0)
        m = jnp.pad(strength, 1)
        sides = [
            (m[1:-1, 2:], m[1:-1, :-2]),
            (m[2:, 2:], m[:-2, :-2]),
            (m[2:, 1:-1], m[:-2, 1:-1]),
            (m[2:, :-2], m[:-2, 2:]),
        ]
        sector = jnp.floor(jnp.mod(angle + 22.5, 180.0) / 45.0).astype(jnp.int32)
        first = jnp.select([sector == i for i in range(4)], [a for a, _ in sides])
        second = jnp.select([sector == i for i in range(4)], [b for _, b in sides])
        thin = jnp.where((strength >= first) & (strength >= second), strength, 0.0)
        strong, weak = thin > 0.5, thin > 0.2

        def grow(_: Any, edges: jax.Array) -> jax.Array:
            wide = lax.reduce_window(edges, False, lax.bitwise_or, (3, 3), (1, 1), "SAME")
            return wide & weak

        return lax.fori_loop(0, steps, grow, strong), thin

    return run, (picture(size),)


def warp(size: int, steps: int) -> Program:
    """A rotation found by descent on the error between warped pictures; then a zoom and a swirl."""

    def transform(p: jax.Array, image: jax.Array) -> jax.Array:
        line = jnp.arange(size) - size / 2
        y, x = jnp.meshgrid(line, line, indexing="ij")
        c, s = jnp.cos(p[0]), jnp.sin(p[0])
        rows, columns = c * y - s * x + p[1] + size / 2, s * y + c * x + p[2] + size / 2
        return map_coordinates(image, [rows, columns], order=1, mode="nearest")

    def run(image: jax.Array, target: jax.Array) -> Any:
        def loss(p: jax.Array) -> jax.Array:
            return jnp.mean((transform(p, image) - target) ** 2)

        def step(p: jax.Array, _: None) -> Any:
            value, g = jax.value_and_grad(loss)(p)
            return p - jnp.array([0.02, 20.0, 20.0]) * g, value

        p, values = lax.scan(step, jnp.zeros(3), None, length=steps)
        large = jax.image.resize(image, (3 * size // 2, 3 * size // 2), "bilinear")
        y, x = jnp.meshgrid(jnp.linspace(-1, 1, size), jnp.linspace(-1, 1, size), indexing="ij")
        r, theta = jnp.hypot(x, y), jnp.arctan2(y, x) + 2.0 * jnp.exp(-2 * jnp.hypot(x, y))
        rows = jnp.clip((r * jnp.sin(theta) + 1) * size / 2, 0, size - 2)
        columns = jnp.clip((r * jnp.cos(theta) + 1) * size / 2, 0, size - 2)
        i, j = rows.astype(jnp.int32), columns.astype(jnp.int32)
        a, b = rows - i, columns - j
        top = image[i, j] * (1 - b) + image[i, j + 1] * b
        bottom = image[i + 1, j] * (1 - b) + image[i + 1, j + 1] * b
        return p, values, large, top * (1 - a) + bottom * a

    image = picture(size)
    return run, (image, jnp.roll(image, 2, axis=0))


def colours(size: int, bins: int) -> Program:
    """Through hue, saturation and value: equalised brightness, a turned hue, a gamma, and back."""

    def to_hsv(rgb: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        r, g, b = rgb[..., 0], rgb[..., 1], rgb[..., 2]
        top, low = jnp.max(rgb, axis=-1), jnp.min(rgb, axis=-1)
        delta = top - low
        safe = jnp.where(delta == 0, 1.0, delta)
        choices = [jnp.mod((g - b) / safe, 6.0), (b - r) / safe + 2.0, (r - g) / safe + 4.0]
        hue = jnp.select([top == r, top == g, top == b], choices) / 6.0
        return (
            jnp.where(delta == 0, 0.0, hue),
            jnp.where(top == 0, 0.0, delta / jnp.where(top == 0, 1.0, top)),
            top,
        )

    def to_rgb(h: jax.Array, s: jax.Array, v: jax.Array) -> jax.Array:
        i = jnp.floor(h * 6.0)
        f = h * 6.0 - i
        p, q, t = v * (1 - s), v * (1 - f * s), v * (1 - (1 - f) * s)
        sector = jnp.mod(i.astype(jnp.int32), 6)
        cases = [sector == k for k in range(6)]
        red, green, blue = [v, q, p, p, t, v], [t, v, v, q, p, p], [p, p, t, v, v, q]
        return jnp.stack([jnp.select(cases, c) for c in (red, green, blue)], axis=-1)

    def equalise(x: jax.Array) -> jax.Array:
        levels = jnp.clip((x * bins).astype(jnp.int32), 0, bins - 1)
        cdf = jnp.cumsum(jnp.bincount(levels.ravel(), length=bins))
        return ((cdf - cdf[0]) / (cdf[-1] - cdf[0]))[levels]

    def run(rgb: jax.Array) -> Any:
        linear = jnp.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        luma = linear @ jnp.array([0.2126, 0.7152, 0.0722])
        h, s, v = to_hsv(rgb)
        out = to_rgb(jnp.mod(h + 0.1, 1.0), jnp.clip(1.2 * s, 0, 1), equalise(v))
        return (jnp.clip(out, 0, 1) * 255).astype(jnp.uint8), luma

    return run, (uniform(size, size, 3),)


SIZES: Final[Sizes] = {
    ("ray-march", ray_march): ((32, 64), (64, 64)),
    ("triangles", triangles): ((48, 40), (128, 100)),
    ("julia", julia): ((96, 60), (256, 60)),
    ("bilateral", bilateral): ((128, 3), (384, 3)),
    ("canny", canny): ((128, 10), (320, 10)),
    ("warp", warp): ((48, 10), (160, 10)),
    ("colours", colours): ((96, 64), (384, 256)),
}
