"""Traced functions as forms read them: their calls, their equations, and how long these take."""
