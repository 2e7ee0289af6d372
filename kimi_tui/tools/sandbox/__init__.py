"""The sandbox of shell commands: what they may reach, and how the system is made to hold them to it."""
