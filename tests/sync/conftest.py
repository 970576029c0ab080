"""What a run publishes: the people, checkpoints and links of the tests of use cases."""

from tests.workspace.conftest import ada, bob, lab, run

__all__ = ["ada", "bob", "lab", "run"]
