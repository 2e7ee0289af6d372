"""The names of files that hold secrets, and of those that run later, however they are written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.cases import each

from kimi_tui.workspace import protected_names
from kimi_tui.workspace.protected_names import (
    NameList,
    links_in,
    run_values,
    runs_later,
    runs_when_started,
    secrets,
)

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
        ".ssh (copy)/work",
        "credentials (another copy).json",
        "server (3rd copy).pem",
        ".netrc (copy 2)",
        "server.key.tar.gz",
        ".netrc.zip",
        "server.pem.b64",
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
MORE_SECRETS = [
    *("prod.tfvars", "eu.tfvars.json", "nomad.token", ".openai_api_key", "deploy-api-key", ".gitlab-token", ".secret_token"),
    *(".arcrc", ".p4tickets", ".erlang.cookie", ".step/secrets/root_ca_key", ".tsh/keys/x", ".ejson/keys/x", "ejson/keys/x"),
    *("postgresql/pgpass.conf", "wallet/cwallet.sso", ".cf/config.json", ".expo/state.json", ".android/adbkey"),
    *(".twilio-cli/config.json", ".travis/config.yml", ".lftp/bookmarks", ".dbeaver/credentials-config.json"),
    *(".doppler/.doppler.yaml", "buildkite-agent.cfg", ".mailrc", "secret_key_base", ".mycli-history", ".dbshell"),
    *(".clickhouse-client-history", ".julia/logs/repl_history.jl", ".lldb/lldb-widehistory", ".cassandra/cqlsh_history"),
    *(".config/pgcli/history", ".config/litecli/history", ".octave_hist"),
    *(".dev.vars", ".dev.vars.production", ".sentryclirc", ".circleci/cli.yml", ".wakatime.cfg"),
    *(".cloudflared/abc.json", ".wrangler/config/default.toml", ".config/.wrangler/config/default.toml"),
    *(".supabase/access-token", ".config/supabase/access-token", ".railway/config.json"),
    *(".config/planetscale/access-token", ".config/turso/settings.json", ".pulumi/credentials.json", ".pg_service.conf"),
    *(".subversion/auth/svn.simple/abc", ".config/tea/config.yml", ".snowflake/connections.toml", ".dbt/profiles.yml"),
    *(".pki/nssdb/key4.db", ".config/filezilla/sitemanager.xml", ".config/filezilla/recentservers.xml"),
    *(".local/share/remmina/x.remmina", ".vnc/passwd", ".config/openstack/clouds.yaml", "clouds.yaml", "openrc.sh"),
    *("admin-openrc.sh", ".config/scw/config.yaml", ".civo.json", ".ovh.conf", ".modal.toml", ".runpod/config.toml"),
    *(".vast_api_key", ".config/io.datasette.llm/keys.json", ".config/shell_gpt/.sgptrc", ".config/aichat/config.yaml"),
    *(".local/share/crush/crush.json", ".config/crush/crush.json", ".factory/auth.json", ".config/cursor/auth.json"),
    *(".pi/agent/auth.json", ".copilot/config.json", ".iflow/oauth_creds.json", ".augment/session.json"),
    *(".config/goose/secrets.yaml", "auth.json", "token.json", "token.pickle", "key.properties", "keystore.properties"),
    *("app.publishsettings", "my-firebase-adminsdk-x.json", "serviceAccountKey.json", "service-account-key.json"),
    *("gha-creds-1234.json", "user.creds", "app.snk", "wp-config.php", "sftp-config.json", ".ftpconfig"),
    *(".remote-sync.json", "secret_token.rb", "prod.secret.exs", "credentials.xml", "credentials.csv"),
    *("credentials.txt", "credentials.ini", "accessKeys.csv", "bob_accessKeys.csv", "rootkey.csv", "passwords.txt"),
    *("password.txt", "passwords.csv", "passwords.kdbx", "secrets.txt", "secrets.ini", "secrets.properties"),
    *("secrets.tfvars", "secret.yaml", "secret.yml", "secret.json", "secret.txt", "db-secret.yaml", "app-secrets.yaml"),
    *(".secrets/api", ".secret", "api_key.txt", "apikey.txt", "token.txt", ".token", ".vault_password"),
    *(".ansible_vault_password", "vault_pass.txt", "vault-password.txt", ".passwd-s3fs", ".rclone.conf"),
    *(".mc/config.json", "plan.tfplan", "tfplan", ".vagrant/machines/default/virtualbox/private_key", "private_key"),
    *("privatekey", "private-key", "privkey", "private.asc", "secret.asc", "deploy_key", "deploy-key", "github_rsa"),
    *("deploy_ed25519", "server_ecdsa", "platform.pk8", "key.pkcs12", "key.pkcs8", "wg0.conf", "wg-home.conf"),
    *("x.nmconnection", "wpa_supplicant.conf", "x.keytab", "krb5.keytab", "krb5cc_1000", "kubeconfig.yaml"),
    *("kubeconfig-prod", "k3s.yaml", ".rhistory", ".history", ".irb-history", ".config/nushell/history.txt"),
    *(".local/share/nushell/history.sqlite3", ".ipython/profile_default/history.sqlite"),
    *(".local/state/nvim/shada/main.shada", ".mongodb/mongosh/mongosh_repl_history", ".python_history"),
    *(".config/google-chrome-beta/Default/Cookies", "snap/chromium/common/chromium/Default/Cookies"),
    *(".var/app/com.google.Chrome/config/google-chrome/Default/Cookies", ".librewolf/x/cookies.sqlite"),
    *(".waterfox/x/key4.db", ".zen/x/logins.json", ".tor-browser/x", "signons.sqlite", "Web Data", "Cookies"),
    *(".local/share/TelegramDesktop/tdata/key_datas", ".config/Element/x", ".weechat/sec.conf"),
    *(".config/weechat/sec.conf", ".irssi/config", ".purple/accounts.xml", ".muttrc", ".offlineimaprc"),
    *(".config/aerc/accounts.conf", ".config/msmtp/config", ".config/isyncrc", ".esmtprc", ".near-credentials/x"),
    *(".foundry/keystores/x", "UTC--2020-01-01T00-00-00.0Z--abc", ".brownie/accounts/x.json", ".psafe3", "db.psafe3"),
    *("x.kwallet", ".gsutil/credstore", ".config/helm/repositories.yaml", ".config/helm/registry/config.json"),
    *(".config/argocd/config", ".argocd/config", ".gitlab-runner/config.toml", ".local/share/jupyter/runtime/x.json"),
    *(".local/share/uv/credentials/x", ".local/share/keyrings/login.keyring", ".tugboat", ".transifexrc"),
    *(".continuum/x", ".aider.conf.yml", ".config/mods/mods.yml", ".config/wandb/settings", ".cassandra/credentials"),
    *(".cassandra/cqlshrc", ".gem/credentials", ".ssh.zip", ".ssh.tar.gz", ".aws.zip", ".gnupg.tar.gz", ".env.zip"),
    *(".env.tar", "secrets.zip", "secrets.tar.gz", "secrets.7z", "server.key.zip", "server.key.tar", "server.key.7z"),
    *("server.pem.txt", "server.key.b64", "server.key.base64", "server.key.asc", "server.key.enc"),
    *("credentials.json.zip", "credentials.json.txt", "credentials.json.gpg", ".netrc.txt", ".netrc.gpg", ".pgpass.zip"),
    *(".npmrc.zip", "wallet.dat.zip", "id_rsa.zip", ".git-credentials.txt", ".ssh_backup/id_work", "ssh/id_rsa"),
    *(".ssh-backup/work", ".ssh.bak/work", ".ssh.old/work", ".ssh (copy)/work", ".ssh~/work", "Copy of .ssh/work"),
    *(".aws.bak/credentials", ".gnupg.bak/x", ".ENV", "ID_RSA", "server.key~", "server.key.1", "server.key.2024-01-01"),
    *("server.key-2024", "server.key.bak.bak.bak.bak.bak.bak", "server.key.orig.gz", ".server.key.swp"),
    *("server.key.swpx", ".server.key.kate-swp", "server.key.part", "server.key.crdownload", "_server.key"),
    "server.key.save.1",
]  # fmt: skip
MORE_THAT_RUNS = [
    *(".run/app.run.xml", "nbproject/private/x.xml", ".textlintrc.js", ".markdownlint-cli2.cjs", ".commitlintrc.js"),
    *("commitlint.config.ts", "Directory.Build.props", "src/Directory.Build.targets", "Directory.Packages.props"),
    *(".hgrc", ".config/hg/hgrc", ".config/jj/config.toml", ".jjconfig.toml", ".config/lazygit/config.yml", ".tigrc"),
    *(".config/gh/config.yml", ".config/direnv/direnvrc", ".direnvrc", ".config/mise/config.toml", "uv.toml"),
    *(".condarc", ".gemrc", "rust-toolchain.toml", "rust-toolchain", ".config/go/env", ".local/bin/git"),
    *(".local/share/applications/x.desktop", "x.desktop", ".config/Code/User/settings.json"),
    *(".config/Cursor/User/settings.json", ".config/sublime-text/Packages/x.py", ".config/zed/settings.json"),
    *(".config/plasma-workspace/env/x.sh", ".config/openbox/autostart", ".config/awesome/rc.lua"),
    *(".config/bspwm/bspwmrc", ".config/qtile/config.py", ".xmonad/xmonad.hs", ".config/xmonad/xmonad.hs"),
    *(".fluxbox/startup", ".config/niri/config.kdl", ".config/polybar/launch.sh", ".config/waybar/config"),
    *(".config/sxhkd/sxhkdrc", ".config/alacritty/alacritty.toml", ".alacritty.toml", ".config/ghostty/config"),
    *(".config/foot/foot.ini", ".config/zellij/config.kdl", ".config/ranger/rc.conf", ".config/lf/lfrc"),
    *(".config/yazi/yazi.toml", ".mailcap", ".forward", ".procmailrc", ".muttrc", ".config/mpv/scripts/x.lua"),
    *(".config/ptpython/config.py", ".lein/profiles.clj", ".clojure/deps.edn", ".sbt/1.0/global.sbt"),
    *(".m2/settings.xml", ".stack/config.yaml", ".cabal/config", ".ocamlinit", ".iex.exs", ".erlang", ".swiplrc"),
    *(".racketrc", ".tclshrc", ".duckdbrc", "_vimrc", ".ideavimrc", "init.vim", ".config/micro/init.lua", ".jedrc"),
    *(".joerc", ".k5login", ".rhosts", ".shosts", ".xserverrc", ".vnc/xstartup", ".bash_completion"),
    *(".local/share/bash-completion/completions/git", ".config/zsh/.zshrc", ".config/zsh/a.zsh", ".zinit/x"),
    *(".antigenrc", ".nvm/nvm.sh", ".rvm/scripts/rvm", ".rbenv/shims/ruby", ".pyenv/shims/python", ".asdf/asdf.sh"),
    *(".asdfrc", ".sdkman/bin/x", ".volta/bin/node", ".rustup/toolchains/x", ".nix-profile/x", ".config/nix/nix.conf"),
    *(".config/home-manager/home.nix", "Microsoft.VSCode_profile.ps1", ".hammerspoon/init.lua", ".yabairc", ".skhdrc"),
    *(".config/karabiner/karabiner.json", ".MacOSX/environment.plist", "tox.ini", ".pylintrc", "pylintrc"),
    *("hatch_build.py", "pdm_build.py", "Vagrantfile", "Tiltfile", "flake.nix", "default.nix", "shell.nix"),
    *("devbox.json", "devenv.nix", "Guardfile", "Dangerfile", ".rspec", ".rubocop.yml", "Jakefile", "nodemon.json"),
    *(".mocharc.js", "bunfig.toml", "eslint.config.js", ".eslintrc.js", ".eslintrc.cjs", ".prettierrc.js"),
    *("prettier.config.js", ".ripgreprc", ".rgrc", ".ackrc", ".ctags", ".r2rc", ".radare2rc", ".ctags.d/x"),
    *(".claudeignore", ".geminiignore", ".codeiumignore", ".cursorindexingignore", ".clineignore", ".rooignore"),
    *(".kilocodeignore", ".gooseignore", ".aiexclude", ".aider.conf.yml", "memory-bank/x.md", ".serena/project.yml"),
    *(".taskmaster/config.json", ".specify/x", ".bmad-core/x", ".openclaw/x", ".clawdbot/x", ".commandcode/x"),
    *(".cortex/x", ".kode/x", ".mcpjam/x", ".mux/x", ".pi/x", ".neovate/x", ".pochi/x", ".adal/x", ".devin/x"),
    *(".bito/x", ".lingma/x", ".tongyi/x", ".marscode/x", ".comate/x", ".qodo/x", ".pr_agent.toml", ".greptile/x"),
    *("greptile.json", "ellipsis.yaml", ".codegen/x", ".refact/x", ".letta/x", ".gptme/x", "gptme.toml", ".forge/x"),
    *("forge.yaml", ".copilot/mcp-config.json", ".kimi-code/AGENTS.md", ".github/agents/x.md", ".superdesign/x"),
    *("SOUL.md", "CONVENTIONS.md", ".builderrules", ".replit.md", ".aiassistant/rules/x.md"),
    *(".github/instructions/x.md", ".blackboxrules", ".codyrules", ".grok/GROK.md", "GROK.md", ".deepagents/x"),
    *(".codex.md", "codex.md", ".agent.md", ".stakpak/x", ".warp/x", "mcp.yaml", "mcp.yml", ".mcp.yaml"),
    *(".vscode/mcp.json", "fastmcp.json", ".roo/mcp.json", ".git", "git~1/config", ".gitattributes", ".gitmodules"),
    *(".lfsconfig", ".githooks/x", ".overcommit.yml", ".pre-commit-config.yaml", "prek.toml", "captainhook.json"),
    *("grumphp.yml", ".simple-git-hooks.json", "simple-git-hooks.js", ".lintstagedrc.json", "husky.config.js"),
    *(".huskyrc.js", ".trunk/trunk.yaml", ".sl/config", "_darcs/prefs/x", ".bzr/x", ".pijul/config", ".cvsrc"),
    *(".tekton/x", ".concourse/x", ".harness/x", ".buildkite/x", ".azure-pipelines/x", "azure-pipelines.yml"),
    *(".azuredevops/x", ".gitlab-ci.yaml", ".github/dependabot.yml", ".build.yml", ".builds/x.yml", ".goreleaser.yml"),
    *(".releaserc", "release.config.js", "amplify.yml", "Procfile", "skaffold.yaml", "bamboo.yml"),
    *(".circleci/config.yml", "vercel.json", "netlify.toml", "apprunner.yaml"),
]  # fmt: skip
ORDINARY = [
    *(
        "example.tfvars",
        "terraform.tfvars.example",
        "src/api_key.py",
        "history.ts",
        "Tokens.tokens",
        "run/x",
        "pgcli/main.py",
    ),
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
    *(
        "src/cookies.ts",
        "secrets.py",
        "docs/secrets.md",
        "secrets/mod.rs",
        "tokenizer.json",
        "src/auth.ts",
        "auth.py",
        "k8s/values.yaml",
    ),
    *(
        "secret.go",
        "external-secret.yaml",
        "app-sealed-secret.yaml",
        "vite.config.ts",
        "src/pi/x.c",
        "history.md",
        "bin/tool",
        "local/bin",
    ),
    *(
        ".dev.vars.example",
        "deploy.md",
        "keys.py",
        "passwords.py",
        "codex/x.md",
        "deploy_rsa.pub",
        "docs/soul.rst",
        "src/tar.py",
        "notes.txt.zip",
    ),
]


def disguised(path: str) -> list[str]:
    """Spellings that some file system takes for the same name."""
    return [path, path.upper(), path.replace("/", "\u200c/") + "\ufeff", path + " .", f"a/b/{path}"]


@pytest.mark.parametrize(
    ("rules", "paths"),
    [
        (secrets(), HOLD_SECRETS),
        (secrets(), MORE_SECRETS),
        (secrets(), COPIES),
        (runs_later(), RUN_LATER),
        (runs_later(), MORE_THAT_RUNS),
    ],
    ids=["secrets", "more secrets", "copies", "run", "more that runs"],
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


ASKED = [
    "lefthook.toml",
    "lefthook.json",
    ".lefthook.toml",
    ".lefthook-local.yml",
    ".rusty-hook.toml",
    "mise.local.toml",
    ".mise.local.toml",
    ".autoenv",
    ".autoenv.zsh",
    ".autoenv_leave.zsh",
    ".shadowenv.d/500.lisp",
    ".lenv",
    "mypy.ini",
    ".flake8",
    "pytest.ini",
    ".ycm_extra_conf.py",
    ".vimspector.json",
    "rust-analyzer.toml",
    ".babelrc",
    ".babelrc.json",
    ".php-cs-fixer.php",
    ".formatter.exs",
    ".luacheckrc",
    "ansible.cfg",
    ".sbtopts",
    ".jvmopts",
    ".bsp/sbt.json",
    "hie.yaml",
    "sub/mypy.ini",
]
NAMED = [
    "vite.config.ts",
    "vitest.config.mts",
    "next.config.mjs",
    "tailwind.config.js",
    "karma.conf.js",
    "docker-compose.yml",
    "docker-compose.dev.yaml",
    "compose.yaml",
    "Dockerfile",
    "gradle.properties",
    "pixi.toml",
    "setup.cfg",
    "CMakeLists.txt",
    "app/app.csproj",
]


def test_what_runs_by_a_commit_a_folder_or_an_editor_asks_and_what_the_user_starts_does_not() -> (
    None
):
    for name in ASKED:
        assert runs_later().rule_in(name.split("/")), name
    for name in NAMED:
        assert not runs_later().rule_in(name.split("/")), name
        assert runs_when_started().rule_in(name.split("/")), name
    for name in ("src/config.ts", "app.py", "tsconfig.json", "README.md", "compose.py"):
        assert not runs_when_started().rule_in(name.split("/")), name


@each(
    "name, before, harmless, runs",
    [
        ("package.json", "{}", '{"version": "2", "dependencies": {}}', '{"gitHooks": {"pre-commit": "x"}}'),
        ("package.json", "{}", '{"name": "x"}', '{"packageManager": "yarn@https://x.test/yarn.js"}'),
        ("package.json", "{}", '{"config": {"port": 1}}', '{"config": {"ghooks": {"pre-commit": "x"}}}'),
        ("package.json", "{}", '{"a": 1}', '{"jest": {"globalSetup": "./x.js"}}'),
        ("package.json", "{}", '{"a": 1}', '{"eslintConfig": {"parser": "./x.js"}}'),
        ("pyproject.toml", "", "[tool.mypy]\nstrict = true\n", '[tool.mypy]\nplugins = ["./x.py"]\n'),
        ("pyproject.toml", "", '[tool.pylint.format]\nmax-line-length = "9"\n', '[tool.pylint.MASTER]\ninit-hook = "x"\n'),
        ("setup.cfg", "[metadata]\nversion = 1\n", "[metadata]\nversion = 2\n", "[flake8:local-plugins]\nextension =\n  X = x:Y\n"),
        ("setup.cfg", "[mypy]\nstrict = 1\n", "[mypy]\nstrict: 0\n", "[mypy]\nplugins = a,\n  ./b.py\n"),
    ],
)  # fmt: skip
def test_keys_that_run_ask_and_others_do_not(
    name: str, before: str, harmless: str, runs: str
) -> None:
    was = run_values(name, before)
    assert run_values(name, harmless) == was
    assert run_values(name, runs) != was


def test_links_are_looked_for_below_git_but_not_where_packages_and_objects_are(
    tmp_path: Path,
) -> None:
    (tmp_path / "real").write_text("x\n")
    for name in (
        *(".env", "sub/.git/hooks/pre-push", "sub/.git/build/.env", "sub/.git/refs/.env"),
        *(
            "sub/node_modules/.env",
            "node_modules/.env",
            "a/b/c/d/.env",
            "a/b/c/d/e/.env",
            "sub/crontabs/mine",
            "sub/.env/lib",
        ),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).symlink_to(tmp_path / "real")
    found = {"/".join(link.names): link.real for link in links_in(str(tmp_path))}
    here = {
        ".env",
        "sub/.git/hooks/pre-push",
        "sub/.git/build/.env",
        "a/b/c/d/.env",
        "sub/crontabs/mine",
    }
    assert found == dict.fromkeys(here, str(tmp_path / "real"))


def test_a_folder_is_listed_again_only_when_its_times_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").write_text("x\n")
    for name in ("top", "top/inner", "top/hooks", "top/other"):
        (tmp_path / name).mkdir()
    listed: list[str] = []
    scandir = os.scandir

    def counted(path: str) -> object:
        listed.append(os.path.relpath(path, tmp_path))
        return scandir(path)

    def found() -> set[str]:
        listed.clear()
        return {"/".join(link.names) for link in links_in(str(tmp_path))}

    monkeypatch.setattr(os, "scandir", counted)
    # What changed just now may change again at the same time.
    assert found() == found() == set()
    assert sorted(listed) == [".", "top", "top/hooks", "top/inner", "top/other"]
    monkeypatch.setattr(protected_names, "SETTLED_NS", -(10**18))
    os.utime(tmp_path / "top/inner", ns=(1, 1))
    assert found() == found() == set()
    assert listed == []
    (tmp_path / "top/inner/.env").symlink_to(tmp_path / "real")
    assert found() == {"top/inner/.env"}
    assert listed == ["top/inner"]
    # A link that was found counts on, and one with another target counts for both.
    (tmp_path / "top/inner/.env").unlink()
    (tmp_path / "second").write_text("y\n")
    (tmp_path / "top/inner/.env").symlink_to(tmp_path / "second")
    links = {link.real for link in links_in(str(tmp_path))}
    assert links == {str(tmp_path / "real"), str(tmp_path / "second")}


def test_a_folder_of_which_a_part_is_read_is_not_read_again_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protected_names, "SETTLED_NS", -(10**18))
    monkeypatch.setattr(protected_names, "_MOST_LOOKED_AT", 3)
    (tmp_path / "real").write_text("x\n")
    (tmp_path / "part").mkdir()
    for name in (".env", ".env.b", ".env.c", ".env.d"):
        (tmp_path / "part" / name).symlink_to(tmp_path / "real")
    listed: list[str] = []
    scandir = os.scandir

    def counted(path: str) -> object:
        listed.append(os.path.relpath(path, tmp_path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counted)
    assert len(links_in(str(tmp_path))) == len(links_in(str(tmp_path))) == 3
    assert listed == [".", "part"]
    # With room for one name more, it is.
    monkeypatch.setattr(protected_names, "_MOST_LOOKED_AT", 4)
    assert len(links_in(str(tmp_path))) == 4
    assert listed == [".", "part", "part"]
    # All of it was read up to the last place, so more room finds the same; less room is less again.
    monkeypatch.setattr(protected_names, "_MOST_LOOKED_AT", 5)
    links_in(str(tmp_path))
    monkeypatch.setattr(protected_names, "_MOST_LOOKED_AT", 6)
    links_in(str(tmp_path))
    assert listed == [".", "part", "part", "part"]


def test_the_target_of_a_known_link_is_resolved_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protected_names, "SETTLED_NS", -(10**18))
    for name in ("work", "one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "work/.env").symlink_to(tmp_path / "way/x")
    (tmp_path / "way").symlink_to(tmp_path / "one")
    assert {link.real for link in links_in(str(tmp_path / "work"))} == {str(tmp_path / "one/x")}
    (tmp_path / "way").unlink()
    (tmp_path / "way").symlink_to(tmp_path / "two")
    targets = {str(tmp_path / "one/x"), str(tmp_path / "two/x")}
    assert {link.real for link in links_in(str(tmp_path / "work"))} == targets


def test_a_rule_of_several_names_is_followed_from_any_folder() -> None:
    rules = protected_names.secrets()
    ways = [way for ways in rules.ways.values() for way in ways]
    assert max(map(len, ways)) > 1
    for way in ways:
        for above in ((), ("one",), ("one", "two", "three")):
            assert rules.leads_on([*above, *way]), (above, way)
            assert not rules.leads_on([*above, *way, "other"]), (above, way)
