"""The paper's experiments: one module a figure, each with the claims that it must show."""
