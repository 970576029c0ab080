"""Figures of two updates, a and b, beside each other."""

from __future__ import annotations

from maskreg.glossary import Entry

COMP = '"No Task Vector is an Island"'

UPDATES = (
    Entry(
        "cosine",
        "<a, b> / (|a| |b|) of two updates, -1 to 1: over all coordinates as one vector, or over a group of tensors. 0 "
        "is no common direction.",
        COMP,
    ),
    Entry(
        "cosine_sd",
        "Standard deviation of the cosine if the sign of every difference were random: sqrt(sum a^2 b^2) / (|a| |b|). "
        "A cosine within two of these says nothing.",
    ),
    Entry(
        "orthogonal",
        "Share of an update's energy that is orthogonal to the other: 1 - cosine^2, the same for both. "
        "orthogonal_by_tensor takes each tensor as a vector of its own and adds up energies: of a, and of b.",
        COMP,
        ("orthogonal_by_tensor", "orthogonal_by_tensor_a", "orthogonal_by_tensor_b", "by tensor"),
    ),
    Entry("energy_a", "Sum of the squares of update a; energy_b of b.", aliases=("energy_b",)),
    Entry(
        "top channels",
        "Jaccard's index of the ceil(channels / 10) MLP channels of largest squared update, mean over the MLPs that "
        "both updates moved, whose number is mlps. A channel is a row of gate_proj and up_proj and the column of "
        "down_proj: one neuron. By chance (expected) is the mean of random sets of that size.",
        COMP,
        ("channels", "by chance", "by_mlp", "mlps"),
    ),
)
"""Definitions, in the order of tables."""
