"""Learning advantages of alternatives from duels: data, networks, baselines, scores on unseen families."""
