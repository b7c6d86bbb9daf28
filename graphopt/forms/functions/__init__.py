"""Functions in vector code of double precision, as jax code."""
