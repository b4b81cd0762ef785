"""Flower's PyTorch quickstart, on data made here."""
