"""Operations as rows: how each is computed by jax and by NumPy."""
