"""Functions of double precision in vector code, as jax code."""
