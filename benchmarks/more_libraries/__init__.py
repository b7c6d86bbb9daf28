"""Programs over more third-party JAX libraries, for measurements and round-trip tests."""
