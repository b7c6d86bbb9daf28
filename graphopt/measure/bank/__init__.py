"""The kernel bank: times of single kernels, added up to times of whole modules."""
