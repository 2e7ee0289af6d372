"""The configuration file, what the environment and the command line change of it, and the choice of a model."""
