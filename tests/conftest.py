"""What every test needs before it imports jax."""

import os
import signal

# The tests are about the CPU backend, on whatever machine they run.
os.environ["JAX_PLATFORMS"] = "cpu"

# A job in the background of a shell ignores interrupts, and so would every process that it starts; tests
# that interrupt one need the usual handler.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
