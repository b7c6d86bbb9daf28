"""Commands that run programs: demo, fuzz, bench, doctor, run."""
