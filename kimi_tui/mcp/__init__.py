"""MCP servers, whose tools the agent uses: configuration, the person's permissions, connections, tools.

Nothing here is imported before a configuration names a server, and the package `mcp` only with the first connection.
"""
