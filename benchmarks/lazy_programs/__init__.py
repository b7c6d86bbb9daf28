"""Eight programs as people write them with lazy tensors, beside the same under other array libraries."""
