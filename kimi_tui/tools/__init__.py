"""The tools of the agent, one module a tool or for tools that are one idea, and what they share: paths, files, processes."""
