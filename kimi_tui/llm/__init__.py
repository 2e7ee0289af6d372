"""Talking to a model: messages, the provider protocol, clients, typed errors."""
