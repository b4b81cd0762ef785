"""What the reports of a round say about each other: read in blocks of columns, reduced to a few numbers per agent."""

from guerdon.evidence.blocks import AgentRows, Layers, as_matrices, column_blocks, combine, lengths_around
from guerdon.evidence.gathering import Evidence, gather
from guerdon.evidence.products import (
    Products,
    evidence_around_prediction,
    evidence_around_zero,
    lengths_of,
    median_of,
    median_of_others,
    multiply,
    shortened_products,
    shortening,
)

__all__ = [
    "AgentRows",
    "Evidence",
    "Layers",
    "Products",
    "as_matrices",
    "column_blocks",
    "combine",
    "evidence_around_prediction",
    "evidence_around_zero",
    "gather",
    "lengths_around",
    "lengths_of",
    "median_of",
    "median_of_others",
    "multiply",
    "shortened_products",
    "shortening",
]
