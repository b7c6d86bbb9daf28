"""Sites of a graph and what may be done at each: legal by mask, one small value each, STOP among them."""
