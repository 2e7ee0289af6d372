"""The tools that use the web: `FetchURL` reads one page, `SearchWeb` asks a search service of the user."""
