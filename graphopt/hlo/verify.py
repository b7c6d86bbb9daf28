"""Static verification (stub)."""
def verify(module, source): pass
