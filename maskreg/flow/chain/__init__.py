"""Chains of links: the weights that several links give one after another, read span by span or held in memory."""
