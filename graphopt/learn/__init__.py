"""Search, tuning and training over decision vectors."""
