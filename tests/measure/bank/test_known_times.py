"""Times by key: the newest value of a key is found, others are not."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from graphopt.measure.bank.known_times import KnownTimes

KEYS = st.integers(0, 2**64 - 1) | st.integers(0, 3)


@given(puts=st.lists(st.lists(st.tuples(KEYS, st.floats(0, 9)), max_size=5), max_size=4))
def test_it_is_a_dictionary(puts):
    table, wanted = KnownTimes(), {}
    for rows in puts:
        keys = np.array([key for key, _ in rows], np.uint64)
        table.put(keys, np.array([value for _, value in rows], float))
        wanted.update(rows)
    asked = np.array([[*wanted, 0, 1, 2**63, 2**64 - 1]], np.uint64)
    expected = [[wanted.get(key, np.nan) for key in asked[0].tolist()]]
    np.testing.assert_array_equal(table.get(asked), expected)
    assert len(table) == len(wanted)
