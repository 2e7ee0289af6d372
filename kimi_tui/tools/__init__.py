"""What the agent can do to the world, one module a tool."""
