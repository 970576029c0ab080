"""Jobs: long work that a server does for those who send requests, kept in a database until it ends."""
