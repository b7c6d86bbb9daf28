"""Programs of machine learning."""
