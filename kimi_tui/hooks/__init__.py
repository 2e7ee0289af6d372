"""Hooks: programs of the user, or of a repository, that are told of events of a session and may refuse some of them."""
