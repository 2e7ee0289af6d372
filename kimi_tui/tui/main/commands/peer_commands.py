"""Commands of other agents that this program does not have, each with where the thing is, or that it does not exist here.

A command that exists here under another name is an alias of it in the table. This module is imported once an unknown
command is sent.
"""

from __future__ import annotations

from collections.abc import Mapping

_MODES = "/mode sets what runs without asking (Shift+Tab goes through the modes)."
_NOTES = "The agent reads AGENTS.md. A message that begins with # is added to the file, /init writes it, /context shows its size."
_OWN = (
    "Ask the agent in a message, or write your own command: a Markdown file in .kimi-tui/commands."
)
_FILES = "To attach a file, write @ and its path in a message."
_DOCTOR = "Run kimi-tui doctor in a shell; here, !kimi-tui doctor does it."
_ISSUE = "kimi-tui doctor --report prints what an issue needs, without secrets."
_SHARE = "Nothing is uploaded. /export writes the conversation to a Markdown file."
_UPDATE = "Update kimi-tui as you installed it, for example with pip or uv; CHANGELOG.md lists the changes."
_HEADER = "Model and mode are in the header; /usage shows the tokens, /permissions what is allowed."
_TERMINAL = "Nothing needs to be set up; kimi-tui doctor says which key combinations and image protocols your terminal supports."
_KEYS = "API keys are in config.toml under [providers]; delete api_key there to log out. /model changes the model."
_KEY_BINDINGS = "You can see and change every key binding in /settings."
_NO_STYLES = "kimi-tui has no output styles. Say in AGENTS.md how the agent should answer."
_NO_PLUGINS = "kimi-tui has no plugins. Commands are Markdown files in .kimi-tui/commands."
_PRIVACY = "kimi-tui sends no telemetry. Data goes to your model's server, and to the web pages, search service and MCP servers that the agent uses."
_TODO = "kimi-tui has no to-do command. The agent keeps its own to-do list in the chat; the timeline (Ctrl+T) shows what was done."

ELSEWHERE: Mapping[str, str] = {
    "about": _DOCTOR,
    "auto": _MODES,
    "bug": _ISSUE,
    "changelog": _UPDATE,
    "debug": "kimi-tui doctor shows the path of the log file.",
    "details": "Press Tab to go to the chat; Space there expands a block. /fold does the same.",
    "doctor": _DOCTOR,
    "docs": "F1 is the help; docs/guide.md is the user guide.",
    "extensions": "kimi-tui has no extensions. Commands are Markdown files in .kimi-tui/commands.",
    "feedback": _ISSUE,
    "files": _FILES,
    "ide": "To work in an editor such as Zed, add an agent (ACP server) with the command kimi-tui acp to its settings. /editor edits the prompt in your editor.",
    "import": "Press i in /sessions to import a session of another agent, or run kimi-tui import in a shell. /import-settings imports settings.",
    "install-github-app": "kimi-tui has no GitHub integration; the agent can use git and gh.",
    "keybindings": _KEY_BINDINGS,
    "keymap": _KEY_BINDINGS,
    "logout": _KEYS,
    "memory": _NOTES,
    "mention": _FILES,
    "output-style": _NO_STYLES,
    "personality": _NO_STYLES,
    "plugin": _NO_PLUGINS,
    "plugins": _NO_PLUGINS,
    "pr-comments": _OWN,
    "privacy": _PRIVACY,
    "privacy-settings": _PRIVACY,
    "release-notes": _UPDATE,
    "reset": "/clear starts over in this session; /new starts a new one.",
    "security-review": _OWN,
    "share": _SHARE,
    "shells": "/tasks lists the background tasks.",
    "status": _HEADER,
    "terminal-setup": _TERMINAL,
    "todo": _TODO,
    "todos": _TODO,
    "unshare": _SHARE,
    "update": _UPDATE,
    "upgrade": _UPDATE,
    "version": "kimi-tui --version, in a shell, prints the version.",
    "vim": "The vim keys of the prompt are a setting: /settings, prompt.vim.",
    "yolo": "/mode all allows nearly everything without asking; kimi-tui --yolo starts in that mode.",
}
"""The answer to each command, in one or two sentences."""
