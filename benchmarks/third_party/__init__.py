"""Programs built on third-party JAX libraries, for round-trip tests of the optimizer."""
