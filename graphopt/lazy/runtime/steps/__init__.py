"""Steps that repeat run together: many steps of a program as one compiled loop."""
