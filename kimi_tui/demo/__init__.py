"""The demo: a scripted model in a small project of real files. Only the model is scripted."""
