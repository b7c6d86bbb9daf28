"""Looking at pending graphs, capturing and tuning them."""
