"""The tools of the agent, in one module per tool or group of related tools, and their shared parts: paths, files, processes."""
