"""Programs of science, simulation, images and discrete mathematics."""
