"""Places of a usual home folder, as data: those that hold secrets, and the caches that package managers write to."""

from __future__ import annotations

from kimi_tui.tools.process import word_set

SECRET_PLACES = frozenset(
    {
        "Library/Application Support/Google/Chrome",
        "Library/Application Support/Firefox",
        "Library/Application Support/BraveSoftware",
    }
) | word_set(""".ssh .gnupg .aws .azure .kube .docker .oci .fly .vercel .kaggle .age .password-store .huggingface
    .terraform.d .netrc .pypirc .npmrc .yarnrc.yml .git-credentials .pgpass .my.cnf .s3cfg .boto .curlrc .wgetrc
    .smbcredentials .vault-token .terraformrc .claude .claude.json .codex .gemini .cursor .Xauthority .ICEauthority
    .cargo/credentials .cargo/credentials.toml .gem/credentials .bundle/config .m2/settings.xml
    .m2/settings-security.xml .gradle/gradle.properties .nuget/NuGet .config/git/credentials .config/gh .config/hub
    .config/glab-cli .config/gcloud .config/doctl .config/rclone .config/sops .config/op .config/1Password
    .config/Bitwarden .config/github-copilot .config/anthropic .config/heroku .config/netlify .config/fly
    .config/configstore .config/pulse/cookie .config/google-chrome .config/chromium .config/BraveSoftware
    .config/microsoft-edge .config/vivaldi .config/Slack .config/discord .config/Signal .mozilla .thunderbird
    .cache/huggingface/token .local/share/keyrings .local/share/kwalletd .local/share/com.vercel.cli
    .local/share/atuin .local/share/fish/fish_history .local/share/containers .local/share/gopass
    .bash_history .zsh_history .zhistory .python_history .psql_history .mysql_history .sqlite_history
    .rediscli_history .mongosh .node_repl_history .irb_history .lesshst .viminfo
    Library/Keychains Library/Cookies Library/Messages Library/Mail""")
"""Below the home folder: keys, logins, browsers' profiles, histories of shells (people type passwords), other agents."""

SECRET_SYSTEM_PLACES = word_set("""/etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/sudoers /etc/sudoers.d
    /etc/ssl/private /etc/NetworkManager/system-connections /etc/wireguard /run/secrets /run/credentials /run/user
    /var/run/secrets /var/lib/docker /var/lib/containers /run/docker /run/containerd /run/podman""")
"""Readable for root, which the user of a container often is."""

CACHES = word_set(""".cache/pip .cache/uv .cache/pypoetry .cache/pre-commit .cache/yarn .cache/pnpm .cache/node
    .cache/go-build .cache/ccache .cache/sccache .cache/mypy .cache/ruff .cache/matplotlib .cache/fontconfig .ccache
    .npm/_cacache .npm/_logs .npm/_update-notifier-last-checked .yarn/cache .local/share/pnpm/store
    .cargo/registry .cargo/git .cargo/.package-cache .cargo/.package-cache-mutate .cargo/.global-cache
    go/pkg/mod .gradle/caches .m2/repository Library/Caches/pip Library/Caches/uv Library/Caches/go-build""")
"""Below the home folder: what package managers and compilers write to even when they fetch nothing."""
