"""Jobs: long work that a server does for its clients, kept in a database until it ends."""
