"""A simulation whose loop depends on its data: particles fall, bounce, and the step adapts.

Plain Python decides after every step: it halves the step when energy drifts, and stops when the
particles are nearly at rest. Each decision observes one number; everything else stays recorded.
"""

import graphopt.lazy as lt

GRAVITY = 9.81


def accelerate(velocity, dt, drag):
    return velocity - dt * (drag * velocity + lt.asarray([0.0, GRAVITY]))


def step(position, velocity, dt, drag):
    velocity = accelerate(velocity, dt, drag)
    position = position + dt * velocity
    below = position[:, 1] < 0
    bounced = lt.where(below, -0.7 * velocity[:, 1], velocity[:, 1])
    velocity[:, 1] = bounced
    position[:, 1] = lt.abs(position[:, 1])
    return position, velocity


def energy(position, velocity):
    return lt.mean(0.5 * lt.sum(velocity * velocity, axis=1) + GRAVITY * position[:, 1])


def main(particles=200, seed=0, max_steps=4000):
    key_x, key_v = lt.random.split(lt.random.key(seed))
    position = lt.random.uniform((particles, 2), 0.5, 2.0, key=key_x)
    velocity = lt.random.normal((particles, 2), key=key_v)
    dt, steps, drag = 0.01, 0, 0.05
    before = float(energy(position, velocity))
    start = before
    while before > 0.02 * start and steps < max_steps:
        new_position, new_velocity = step(position, velocity, dt, drag)
        now = float(energy(new_position, new_velocity))
        if now > before + 1e-3 and dt > 1e-3:  # the step was too long
            dt /= 2
            continue
        position, velocity, before = new_position, new_velocity, now
        steps += 1
    print(f"{steps} steps, energy {start:.3f} -> {before:.3f}, last step {dt}")
    return steps, start, before


if __name__ == "__main__":
    main()
