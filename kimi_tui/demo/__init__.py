"""The demo: a scripted model (`story.toml`) in a small project of real files. Only the model is scripted."""
