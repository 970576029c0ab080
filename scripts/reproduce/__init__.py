"""Masked retraining of a small model beside its controls, over several seeds."""
