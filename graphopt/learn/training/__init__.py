"""Imitation, PPO and fine-tuning: runs, stages, steps, metrics."""
