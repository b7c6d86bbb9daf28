"""`Tensor`, and how it is indexed and exchanged with other libraries."""
