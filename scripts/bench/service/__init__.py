"""A server under load: search in a large registry, every route beside MLflow's, memory, and pulls in parallel."""
