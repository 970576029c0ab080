"""The registry as a service: an HTTP API and web pages over the use cases."""
