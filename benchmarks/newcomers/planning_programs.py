"""Learned models of environments, search and evolution."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from benchmarks.third_party.common import Builder, Program, as_arrays, normal


def dreamer_imagination_step() -> Program:
    """One step of actor and critic on imagined rollouts of a recurrent model with discrete states."""
    import distrax
    import flax.linen as nn
    import optax

    deter, classes, kinds, width, actions, horizon = 64, 8, 8, 64, 4, 12

    def mlp(x, layers, out):
        for _ in range(layers):
            x = nn.silu(nn.LayerNorm()(nn.Dense(width)(x)))
        return nn.Dense(out)(x)

    class RSSM(nn.Module):
        def setup(self):
            self.inp = nn.Dense(width)
            self.norm = nn.LayerNorm()
            self.cell = nn.GRUCell(features=deter)
            self.prior_hidden = nn.Dense(width)
            self.prior_out = nn.Dense(kinds * classes)

        def __call__(self, state, action, key):
            h, z = state
            x = jnp.concatenate([z.reshape(z.shape[0], -1), action], -1)
            h, _ = self.cell(h, nn.silu(self.norm(self.inp(x))))
            logits = self.prior_out(nn.silu(self.prior_hidden(h)))
            probs = nn.softmax(logits.reshape(-1, kinds, classes))
            probs = 0.99 * probs + 0.01 / classes
            sample = distrax.OneHotCategorical(probs=probs, dtype=jnp.float32).sample(seed=key)
            return h, sample + probs - jax.lax.stop_gradient(probs)

    class Head(nn.Module):
        out: int
        layers: int = 2

        @nn.compact
        def __call__(self, features):
            return mlp(features, self.layers, self.out)

    rssm, actor, bins = RSSM(), Head(actions), 31
    critic, reward_head, continue_head = Head(bins), Head(1), Head(1)
    keys = jax.random.split(jax.random.PRNGKey(0), 6)
    h = jnp.tanh(normal(1, 16, deter))
    z = jax.nn.one_hot(jax.random.randint(keys[5], (16, kinds), 0, classes), classes)
    feature = jnp.zeros((1, deter + kinds * classes))
    model_params = {
        "rssm": rssm.init(keys[0], (h, z), jnp.zeros((16, actions)), keys[0]),
        "reward": reward_head.init(keys[1], feature),
        "continue": continue_head.init(keys[2], feature),
    }
    params = {"actor": actor.init(keys[3], feature), "critic": critic.init(keys[4], feature)}
    slow = params["critic"]
    tx = optax.chain(optax.clip_by_global_norm(100.0), optax.adam(3e-5, eps=1e-5))
    support = jnp.linspace(-10.0, 10.0, bins)

    def symexp(x):
        return jnp.sign(x) * (jnp.exp(jnp.abs(x)) - 1)

    def symlog(x):
        return jnp.sign(x) * jnp.log1p(jnp.abs(x))

    def two_hot(x):
        below = jnp.clip((support <= x[..., None]).sum(-1) - 1, 0, bins - 2)
        upper = ((x - support[below]) / (support[1] - support[0]))[..., None]
        lower, higher = jax.nn.one_hot(below, bins), jax.nn.one_hot(below + 1, bins)
        return lower * (1 - upper) + higher * upper

    def value_of(params, features):
        return symexp((nn.softmax(critic.apply(params, features)) * support).sum(-1))

    def features_of(state):
        h, z = state
        return jnp.concatenate([h, z.reshape(z.shape[0], -1)], -1)

    def policy(params, features):
        probs = 0.99 * nn.softmax(actor.apply(params, features)) + 0.01 / actions
        return distrax.OneHotCategorical(probs=probs, dtype=jnp.float32)

    def imagine(params, model_params, state, key):
        def step(state, key):
            action_key, state_key = jax.random.split(key)
            features = features_of(state)
            dist = policy(params["actor"], jax.lax.stop_gradient(features))
            action = dist.sample(seed=action_key)
            action = action + dist.probs - jax.lax.stop_gradient(dist.probs)
            return rssm.apply(model_params["rssm"], state, action, state_key), (features, action)

        last, (features, action) = jax.lax.scan(step, state, jax.random.split(key, horizon))
        return jnp.concatenate([features, features_of(last)[None]]), action

    def loss_fn(params, slow, model_params, state, key):
        features, action = imagine(params, model_params, state, key)
        reward = symexp(reward_head.apply(model_params["reward"], features).squeeze(-1))[1:]
        cont = nn.sigmoid(continue_head.apply(model_params["continue"], features).squeeze(-1))
        discount = 0.997 * cont[1:]
        value = value_of(params["critic"], features)

        def lambda_return(following, inputs):
            reward, discount, value = inputs
            following = reward + discount * (0.05 * value + 0.95 * following)
            return following, following

        _, returns = jax.lax.scan(
            lambda_return, value[-1], (reward, discount, value[1:]), reverse=True
        )
        weight = jnp.cumprod(jnp.concatenate([jnp.ones_like(discount[:1]), discount[:-1]]), 0)
        weight = jax.lax.stop_gradient(weight)
        low, high = jnp.percentile(returns, jnp.array([5.0, 95.0]))
        scale = jax.lax.stop_gradient(jnp.maximum(1.0, high - low))
        dist = policy(params["actor"], jax.lax.stop_gradient(features[:-1]))
        advantage = (returns - value[:-1]) / scale
        log_prob = dist.log_prob(jax.lax.stop_gradient(action))
        actor_loss = log_prob * jax.lax.stop_gradient(advantage) + 0.1 * advantage
        actor_loss = -(weight * (actor_loss + 3e-4 * dist.entropy())).mean()

        fixed = jax.lax.stop_gradient(features[:-1])
        log_probs = nn.log_softmax(critic.apply(params["critic"], fixed))
        target = two_hot(symlog(jax.lax.stop_gradient(returns)))
        slow_target = two_hot(symlog(jax.lax.stop_gradient(value_of(slow, fixed))))
        critic_loss = -(weight * ((target + slow_target) * log_probs).sum(-1)).mean()
        return actor_loss + critic_loss, (actor_loss, critic_loss, returns.mean())

    def step(params, slow, opt_state, model_params, state, key):
        (_, info), grads = jax.value_and_grad(loss_fn, has_aux=True)(
            params, slow, model_params, state, key
        )
        updates, opt_state = tx.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        slow = optax.incremental_update(params["critic"], slow, 0.02)
        return params, slow, opt_state, info

    return step, (params, slow, tx.init(params), model_params, (h, z), jax.random.PRNGKey(9))


def muzero_search_and_learn() -> Program:
    """Sixteen simulations from eight positions, then a step of the network on the search's targets."""
    import flax.linen as nn
    import mctx
    import optax
    import rlax

    actions, width, bins, batch, unroll = 4, 64, 21, 8, 4
    pair = rlax.muzero_pair(-10.0, 10.0, bins, rlax.SIGNED_HYPERBOLIC_PAIR)

    class MuZero(nn.Module):
        def setup(self):
            self.encoder = nn.Sequential([nn.Dense(width), nn.relu, nn.Dense(width), nn.tanh])
            self.transition = nn.Sequential(
                [nn.Dense(width), nn.LayerNorm(), nn.relu, nn.Dense(width), nn.tanh]
            )
            self.reward = nn.Sequential([nn.Dense(width), nn.relu, nn.Dense(bins)])
            self.policy = nn.Sequential([nn.Dense(width), nn.relu, nn.Dense(actions)])
            self.value = nn.Sequential([nn.Dense(width), nn.relu, nn.Dense(bins)])

        def initial(self, obs):
            state = self.encoder(obs)
            return state, self.policy(state), self.value(state)

        def recurrent(self, state, action):
            x = jnp.concatenate([state, jax.nn.one_hot(action, actions)], -1)
            following = self.transition(x)
            reward = self.reward(x)
            return following, reward, self.policy(following), self.value(following)

        def __call__(self, obs, action):
            state, _, _ = self.initial(obs)
            return self.recurrent(state, action)

    net = MuZero()
    initial = functools.partial(net.apply, method="initial")
    recurrent = functools.partial(net.apply, method="recurrent")

    def scalar(logits):
        return pair.apply_inv(jax.nn.softmax(logits))

    def recurrent_fn(params, rng_key, action, state):
        following, reward, logits, value = recurrent(params, state, action)
        return (
            mctx.RecurrentFnOutput(
                reward=scalar(reward),
                discount=jnp.full(action.shape, 0.97),
                prior_logits=logits,
                value=scalar(value),
            ),
            following,
        )

    def loss_fn(params, obs, taken, rewards, target_policy, target_value):
        state, logits, value = initial(params, obs)
        ce = optax.softmax_cross_entropy
        value_probs = pair.apply(target_value)
        loss = ce(logits, target_policy).mean() + 0.25 * ce(value, value_probs).mean()

        def step(state, inputs):
            action, reward = inputs
            state, reward_logits, logits, value = recurrent(params, state, action)
            state = optax.scale_gradient(state, 0.5)
            step_loss = ce(reward_logits, pair.apply(reward)) + ce(logits, target_policy)
            return state, (step_loss + 0.25 * ce(value, value_probs)).mean() / unroll

        _, losses = jax.lax.scan(step, state, (taken, rewards))
        return loss + losses.sum()

    tx = optax.adamw(1e-3, weight_decay=1e-4)

    def train(params, opt_state, obs, taken, rewards, key):
        state, logits, value = initial(params, obs)
        root = mctx.RootFnOutput(prior_logits=logits, value=scalar(value), embedding=state)
        policy = mctx.gumbel_muzero_policy(
            params, key, root, recurrent_fn, num_simulations=16, max_num_considered_actions=4
        )
        summary = policy.search_tree.summary()
        loss, grads = jax.value_and_grad(loss_fn)(
            params, obs, taken, rewards, policy.action_weights, summary.value
        )
        updates, opt_state = tx.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        return params, opt_state, loss, policy.action, policy.action_weights, summary.value

    obs = normal(0, batch, 10)
    taken = jax.random.randint(jax.random.PRNGKey(1), (unroll, batch), 0, actions)
    params = net.init(jax.random.PRNGKey(2), obs, taken[0])
    args = (params, tx.init(params), obs, taken, normal(3, unroll, batch), jax.random.PRNGKey(4))
    return train, args


def evosax_openes_cartpole() -> Program:
    """Four generations of an evolution strategy, each scored by eighty steps of cart poles."""
    import flax.linen as nn
    import gymnax
    import optax
    from evosax.algorithms import Open_ES

    population_size, generations, steps = 32, 4, 80
    env, env_params = gymnax.make("CartPole-v1")

    class Policy(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.tanh(nn.Dense(16)(x))
            x = nn.tanh(nn.Dense(16)(x))
            return nn.Dense(2)(x)

    policy = Policy()
    solution = policy.init(jax.random.PRNGKey(0), jnp.zeros(4))
    es = Open_ES(
        population_size=population_size,
        solution=solution,
        optimizer=optax.adam(learning_rate=0.03),
        std_schedule=optax.exponential_decay(0.3, transition_steps=10, decay_rate=0.9),
    )
    es_params = es.default_params

    def rollout(policy_params, key):
        key_reset, key_steps = jax.random.split(key)
        obs, state = env.reset(key_reset, env_params)

        def env_step(carry, key):
            obs, state, total, alive = carry
            action = jnp.argmax(policy.apply(policy_params, obs))
            obs, state, reward, terminated, truncated, _ = env.step(key, state, action, env_params)
            total = total + reward * alive
            alive = alive * (1.0 - jnp.logical_or(terminated, truncated))
            return (obs, state, total, alive), None

        carry = (obs, state, jnp.float32(0.0), jnp.float32(1.0))
        (_, _, total, _), _ = jax.lax.scan(env_step, carry, jax.random.split(key_steps, steps))
        return total

    def run(state, key):
        def generation(state, key):
            key_ask, key_eval, key_tell = jax.random.split(key, 3)
            population, state = es.ask(key_ask, state, es_params)
            keys = jax.random.split(key_eval, 2)
            score = jax.vmap(jax.vmap(rollout, (None, 0)), (0, None))(population, keys)
            fitness = -score.mean(axis=1)
            state, metrics = es.tell(key_tell, population, fitness, state, es_params)
            return state, (fitness, metrics["best_fitness"])

        state, out = jax.lax.scan(generation, state, jax.random.split(key, generations))
        return state.mean, out

    state = es.init(jax.random.PRNGKey(1), solution, es_params)
    return run, (as_arrays(state), jax.random.PRNGKey(2))


def maml_sine_steps() -> Program:
    """Three steps of model-agnostic meta-learning on sixteen sine waves, two inner steps each."""
    import flax.linen as nn
    import optax
    from flax.training.train_state import TrainState

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.relu(nn.Dense(40)(x))
            x = nn.relu(nn.Dense(40)(x))
            return nn.Dense(1)(x)

    net = Net()
    params = net.init(jax.random.PRNGKey(0), jnp.zeros((1, 1)))
    state = as_arrays(TrainState.create(apply_fn=net.apply, params=params, tx=optax.adam(1e-3)))

    def sample_tasks(key, tasks=16, shots=10):
        amplitude_key, phase_key, x_key = jax.random.split(key, 3)
        amplitude = jax.random.uniform(amplitude_key, (tasks, 1, 1), minval=0.1, maxval=5.0)
        phase = jax.random.uniform(phase_key, (tasks, 1, 1), minval=0.0, maxval=jnp.pi)
        x = jax.random.uniform(x_key, (tasks, 2 * shots, 1), minval=-5.0, maxval=5.0)
        y = amplitude * jnp.sin(x + phase)
        return x[:, :shots], y[:, :shots], x[:, shots:], y[:, shots:]

    def loss(params, x, y):
        return jnp.mean((net.apply(params, x) - y) ** 2)

    def inner_update(params, x, y, lr=0.01):
        for _ in range(2):
            grads = jax.grad(loss)(params, x, y)
            params = jax.tree.map(lambda p, g: p - lr * g, params, grads)
        return params

    def maml_loss(params, x1, y1, x2, y2):
        return loss(inner_update(params, x1, y1), x2, y2)

    def batch_loss(params, tasks):
        return jax.vmap(maml_loss, in_axes=(None, 0, 0, 0, 0))(params, *tasks).mean()

    def train(state, key):
        def step(state, key):
            value, grads = jax.value_and_grad(batch_loss)(state.params, sample_tasks(key))
            return state.apply_gradients(grads=grads), value

        state, losses = jax.lax.scan(step, state, jax.random.split(key, 3))
        return state.params, losses

    return train, (state, jax.random.PRNGKey(1))


WORKLOADS: dict[str, Builder] = {
    "dreamer-imagination-step": dreamer_imagination_step,
    "muzero-search-and-learn": muzero_search_and_learn,
    "evosax-openes-cartpole": evosax_openes_cartpole,
    "maml-sine-steps": maml_sine_steps,
}
