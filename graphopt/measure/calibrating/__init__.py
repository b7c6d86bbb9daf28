"""What the facts of `CpuCosts` are on this machine: small programs, timed in a child process."""
