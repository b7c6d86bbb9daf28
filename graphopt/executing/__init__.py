"""Where measuring runs: in this process's children, or on the machines of a Ray cluster."""
