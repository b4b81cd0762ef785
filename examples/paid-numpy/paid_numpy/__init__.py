"""A Flower app with paid rounds: logistic regression in NumPy, by the paper's own protocol."""
