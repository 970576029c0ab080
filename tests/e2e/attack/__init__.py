"""Attacks in their thousands: damaged objects, killed processes and a network that lies; nothing is silent or torn."""
