"""Programs measured once per release."""
