"""The instant prompt: the first page and a prompt that echoes, painted before Textual is imported, and handed over to the app."""
