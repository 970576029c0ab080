"""The pages of a server: drawn on the server, readable without a script, of a few kilobytes."""
