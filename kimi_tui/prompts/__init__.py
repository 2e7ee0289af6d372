"""The text that the model reads, as Markdown files, and the small loader that fills them in (`load`)."""
