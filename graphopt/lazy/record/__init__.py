"""Recording: operands become nodes, nodes become tensors."""
