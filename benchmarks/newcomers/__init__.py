"""Programs over libraries that no other benchmark uses, and whole trainings in one file, as they came."""
