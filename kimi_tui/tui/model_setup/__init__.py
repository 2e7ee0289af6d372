"""Setting up a model: the screens of the first run (API key, local servers), and of `/model`."""
