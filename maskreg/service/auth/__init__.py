"""Accounts: projects, their members, tokens and sessions, and how a sender proves its identity."""
