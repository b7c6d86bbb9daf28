"""Small programs that together cover the operations and loop shapes of real code.

Each compiles in well under a second and runs in a few milliseconds at most.  All are well
conditioned: a rounding error in an operation never decides an index, a branch or a trip count.
"""

from graphopt.corpus.fuzzing.carried import CARRIED
from graphopt.corpus.fuzzing.chains import CHAINS
from graphopt.corpus.fuzzing.kinds import KINDS
from graphopt.corpus.fuzzing.loops import LOOPS
from graphopt.corpus.fuzzing.operations import OPERATIONS
from graphopt.corpus.fuzzing.shared import SHARED

FUZZ = LOOPS | OPERATIONS | KINDS | CHAINS | CARRIED | SHARED
"""All small programs of `graphopt fuzz`, by name."""
