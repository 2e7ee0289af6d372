"""The app in a browser: a server on this machine, and a terminal for each tab (docs/browser.md)."""
