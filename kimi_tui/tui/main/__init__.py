"""The main screen of a session: `workbench` and `screen`, the parts between them, and the slash `commands`."""
