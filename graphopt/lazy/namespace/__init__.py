"""The functions of the array API standard, by chapter; `graphopt.lazy` offers them all."""
