"""Flower's scikit-learn quickstart, on data made here."""
