"""A small paid app for the tests of a real deployment."""
