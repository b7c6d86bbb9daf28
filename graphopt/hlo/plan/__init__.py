"""From decisions to the kernels, joins and native regions of a module."""
