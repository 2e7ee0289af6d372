"""The names of files that hold secrets, and of those that run later, however they are written."""

from __future__ import annotations

import pytest

from kimi_tui.workspace.protected_names import NameList, run_values, runs_later, secrets

HOLD_SECRETS = [
    ".ssh/id_rsa",
    ".ssh/config",
    ".gnupg/secring.gpg",
    "work/id_ed25519",
    "deploy/id_rsa_prod",
    ".aws/credentials",
    ".aws/config",
    ".azure/accessTokens.json",
    ".kube/config",
    ".docker/config.json",
    ".netrc",
    "_netrc",
    ".git-credentials",
    ".pypirc",
    ".npmrc",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings.xml",
    ".pgpass",
    ".my.cnf",
    ".vault-token",
    ".terraform.d/credentials.tfrc.json",
    "infra/prod.tfstate",
    "infra/prod.tfstate.backup",
    ".config/gh/hosts.yml",
    ".config/gcloud/credentials.db",
    ".config/gcloud/legacy/x/adc.json",
    ".env",
    ".env.local",
    "app/.env.production",
    "prod.env",
    ".envrc",
    "server.pem",
    "tls/server.key",
    "cert.p12",
    "app.keystore",
    "vault.kdbx",
    ".password-store/mail.gpg",
    ".local/share/keyrings/login.keyring",
    ".mozilla/firefox/x.default/logins.json",
    ".config/google-chrome/Default/Login.db",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".psql_history",
    ".node_repl_history",
    ".local/share/fish/fish_history",
    ".claude/.credentials.json",
    ".codex/auth.json",
    ".kimi/config.toml",
    ".config/rclone/rclone.conf",
    ".s3cfg",
    ".boto",
    ".databrickscfg",
    ".cache/huggingface/token",
    "secrets.toml",
    "credentials.json",
    "etc/shadow",
]
COPIES = [
    *(
        "deploy.key.bak",
        "server.pem~",
        "server.pem.~2~",
        "id_rsa.old",
        ".netrc.save",
        ".pgpass.orig",
    ),
    *(
        ".npmrc.rpmsave",
        ".my.cnf.dpkg-old",
        "credentials.json.1",
        "credentials.json.2024-01-05T10:00",
    ),
    *(
        "credentials copy.json",
        "credentials (1).json",
        "credentials - Copy (2).json",
        "Copy of .netrc",
    ),
    *(
        "secrets_backup.yml",
        "secrets.bak.yml",
        "secrets.yml.bak3",
        "secrets.yml.old.gz",
        "#secrets.yml#",
    ),
    *(".secrets.yml.swp", ".netrc.swp", "prod.tfstate.tmp", "kubeconfig-old", ".env~", ".env copy"),
    *(
        ".ssh.bak/id",
        ".ssh-old/config",
        ".aws.orig/credentials",
        ".aws/credentials.bak",
        ".gnupg copy/x",
    ),
    *(
        ".bash_history.1",
        "vault.kdbx.20240105",
        "gh/hosts.yml.save",
        "shadow.bak",
        ".git-credentials_old",
    ),
]
RUN_LATER = [
    ".git/hooks/pre-commit",
    ".git/config",
    ".github/workflows/x.yml",
    ".env-prod",
    ".envfoo",
    "inc.mak",
    "Makefile.inc",
    "Makefile.am",
    "hooks/update",
    "pre-commit",
    ".git-hooks/x",
    "githooks/pre-commit",
    ".husky/pre-push",
    ".devcontainer.json",
    ".gitpod.yml",
    "setup.py",
    "build.rs",
    ".venv/bin/python",
    ".venv/bin/activate",
    "venv/bin/pip",
    "node_modules/.bin/tsc",
    "conftest.py",
    "noxfile.py",
    "justfile",
    "lib/x.pth",
    ".kiro/steering/a.md",
    ".junie/guidelines.md",
    ".amazonq/rules/a.md",
    "QWEN.md",
    "WARP.md",
    ".rules",
    "skills/x/SKILL.md",
    "opencode.jsonc",
    "AGENTS.md",
    "CLAUDE.md",
    ".cursor/rules/a.mdc",
    ".goosehints",
    ".roomodes",
    ".augment-guidelines",
    ".trae/rules",
    ".qoder/x",
    ".openhands/microagents/repo.md",
    ".github/copilot-instructions.md",
    ".continuerules",
    ".voidrules",
    "crush.json",
    "mcp_config.json",
    ".irbrc",
    ".Rprofile",
    ".pythonrc",
    ".curlrc",
    ".wgetrc",
    ".emacs.d/init.el",
    ".config/nvim/init.lua",
    ".config/fish/conf.d/x.fish",
    ".vim/plugin/x.vim",
    ".ipython/profile_default/startup/a.py",
    ".psqlrc",
    ".sqliterc",
    ".xinitrc",
    ".config/autostart/x.desktop",
    ".config/systemd/user/x.service",
    ".bashrc.d/x",
    ".zshrc.local",
    ".config/git/hooks/x",
    ".inputrc",
    ".gdbinit",
    ".ghci",
    ".pryrc",
    ".config/environment.d/x.conf",
    ".vscode/tasks.json",
    ".idea/workspace.xml",
    ".zed/settings.json",
    "x.code-workspace",
    ".gitlab-ci.yml",
    "Jenkinsfile",
    ".ssh/authorized_keys",
]
ORDINARY = [
    "src/app.py",
    "src/app.py.bak",
    "notes copy.json",
    "report (1).json",
    "data-1.json",
    "app.old.yml",
    "backup.tar.gz",
    "box-shadow-2.css",
    "Makefile.orig/x",
    "archive.old/main.rs",
    "~",
    "v1.2",
    "copy of ",
    "#",
    "src/hooks/use.ts",
    "env.py",
    "environment.md",
    "agents.py",
    "makefile.py",
    "README.md",
    "docs/keys.md",
    "src/id_map.py",
    "id_ed25519.pub",
    ".env.example",
    "tests/test_secrets.py",
    "package.json",
    "pyproject.toml",
    "src/credentials/__init__.py",
    "keyring.py",
    "config.toml",
    "Dockerfile",
    "main.rs",
    "index.html",
    "notes.txt",
    "token.py",
    ".gitignore",
    ".editorconfig",
]


def disguised(path: str) -> list[str]:
    """Spellings that some file system takes for the same name."""
    return [path, path.upper(), path.replace("/", "\u200c/") + "\ufeff", path + " .", f"a/b/{path}"]


@pytest.mark.parametrize(
    ("rules", "paths"),
    [(secrets(), HOLD_SECRETS), (secrets(), COPIES), (runs_later(), RUN_LATER)],
    ids=["secrets", "copies", "run"],
)
def test_every_spelling_of_a_guarded_name_is_known(rules: NameList, paths: list[str]) -> None:
    missed = [one for path in paths for one in disguised(path) if not rules.rule_in(one.split("/"))]
    assert missed == []


def test_ordinary_names_are_ordinary() -> None:
    found = {
        path: rule
        for path in ORDINARY
        for rules in (secrets(), runs_later())
        if (rule := rules.rule_in(path.split("/")))
    }
    assert found == {}


def test_a_folder_of_the_name_of_a_file_is_none() -> None:
    assert not secrets().rule_in(["credentials"], is_folder=True)
    assert secrets().rule_in([".ssh"], is_folder=True)


def test_what_a_package_manager_would_run() -> None:
    toml = '[project]\nname = "a"\n[tool.hatch.build.hooks.custom]\n'
    assert run_values("PyProject.toml", toml) != run_values("pyproject.toml", "[project]\n")
    assert run_values("pyproject.toml", "[project]\nversion = '1'") == run_values(
        "pyproject.toml", ""
    )
    assert run_values("package.json", "{") is None
    assert run_values("package.json", "[1]") == run_values("package.json", "{}")
    assert run_values("other.json", "{") == []
