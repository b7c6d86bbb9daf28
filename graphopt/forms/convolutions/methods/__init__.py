"""What computes convolutions without holes: each method takes the geometry, named arrays and a precision."""
