"""Measuring on several machines: throughput, equality, faults, and a simulation of many machines."""
