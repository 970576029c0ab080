"""How long extract and apply take on models of 671 B and 1 T parameters: measured rates, and a simulated schedule."""
