"""The pages of a server: drawn on the server, and readable without a script."""
