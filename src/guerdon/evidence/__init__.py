"""What the reports of a round say about each other: read in blocks of columns, reduced to a few numbers per agent."""

from guerdon.evidence.blocks import AgentRows, Layers, as_matrices, column_blocks, combine, lengths_around
from guerdon.evidence.gathering import Evidence, gather, mean_pair_distance
from guerdon.evidence.pairs import CutPairs, cut_pairs, pair_distances, row_of
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
    "CutPairs",
    "Evidence",
    "Layers",
    "Products",
    "as_matrices",
    "column_blocks",
    "combine",
    "cut_pairs",
    "evidence_around_prediction",
    "evidence_around_zero",
    "gather",
    "lengths_around",
    "lengths_of",
    "mean_pair_distance",
    "median_of",
    "median_of_others",
    "multiply",
    "pair_distances",
    "row_of",
    "shortened_products",
    "shortening",
]
