"""Paid rounds for any framework: reports checked, the one server asked, every round booked in a ledger.

Flower's strategy, NVIDIA FLARE's aggregator and `guerdon serve` are thin: each turns its own messages into a model and
reports by name, and these decide nothing about pay.
"""
