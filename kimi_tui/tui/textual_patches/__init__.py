"""Contains every use of Textual's private parts; no other package names any of them.

Each class and function says what it mends, and which public way was missing. `compositor` has the frames, `terminal` the input
of the terminal, `app` the app and what only it knows, `widgets` the fields and scrolling views. Textual's upper bound in
pyproject.toml is for these: a new version of it is looked through here.
"""
