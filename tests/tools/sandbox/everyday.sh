# One everyday command a line, run one after another in one sandboxed bash, in a small project that is a git repository.
# A line whose program is not there is passed over. Those at the end need the network, which has to be asked for.
pwd && ls -la
cat README.md
head -n 2 src/app.py
tail -n 2 src/app.py
wc -l src/*.py
find . -name '*.py' -not -path './.git/*'
grep -rn def src
sed -n 1,5p src/app.py
sed -i 's/hello/Hello/' src/app.py
awk '{print NR": "$0}' README.md
sort README.md | uniq -c
diff README.md README.md
tree -L 2 2>/dev/null || ls -R src
mkdir -p build/out && touch build/out/a
cp README.md build/
mv build/README.md build/README.txt
rm -rf build
echo text > notes.txt && cat notes.txt && rm notes.txt
cat > script.sh <<< 'echo run' && chmod +x script.sh && ./script.sh
ln -s README.md link && readlink link && rm link
tar -czf /tmp/p.tgz src && tar -tzf /tmp/p.tgz
zip -qr /tmp/p.zip src && unzip -l /tmp/p.zip
echo out > /tmp/out.txt && cat /tmp/out.txt
mktemp && mktemp -d
tmp=$(mktemp) && git diff > "$tmp" && cat "$tmp"
echo quiet > /dev/null 2>&1
cat /etc/os-release
env | sort | head -3
date && uname -a && nproc
df -h . && du -sh .
ps aux | head -2
printf 'a\nb\n' | while read -r line; do echo "$line"; done
xargs -a README.md echo
stat README.md && file README.md
md5sum README.md && sha256sum README.md
base64 README.md | base64 -d
time sleep 0.01
timeout 5 true
(sleep 0.01; echo later) & wait
test -f README.md && echo yes
which python3 git bash
git status
git status --short
git diff
git diff --stat
git log --oneline -5
git show --stat HEAD
git branch -a
git checkout -q -b work
git add -A
git commit -q -m "Change the greeting"
git commit -q --amend --no-edit
git stash list
echo more >> README.md && git stash && git stash pop
git checkout -- README.md
git rev-parse --abbrev-ref HEAD
git blame README.md
git grep -n main
git ls-files
git tag v1 && git tag -d v1
git cherry-pick --abort || true
git checkout -q main && git merge -q work
git reset -q --hard HEAD
git clean -fdn
git rebase work
git revert --no-edit HEAD
git format-patch -1 --stdout
git worktree list
git mv src/app.py src/main.py && git mv src/main.py src/app.py
git show HEAD:README.md
git config --list
git remote -v
git shortlog -sn HEAD
git describe --always
git archive HEAD | tar -t
python3 --version
python3 -c 'print(1 + 1)'
python3 src/app.py
python3 -m py_compile src/app.py
python3 -m json.tool package.json
python3 -m unittest -q tests/test_app.py
python3 -c 'import multiprocessing as m; m.Lock(); print(m.cpu_count())'
python3 -c 'import tempfile; tempfile.NamedTemporaryFile()'
python3 -c 'import sqlite3; sqlite3.connect("x.db").execute("create table t(a)")'
python3 -c 'import socket, threading; s = socket.create_server(("127.0.0.1", 0)); c = socket.create_connection(s.getsockname())'
python3 -c 'import concurrent.futures as f; list(f.ProcessPoolExecutor(2).map(abs, [1, -2]))'
python3 -c 'import pty, os; pty.openpty()'
python3 -c 'import pty; assert not pty.spawn(["sh", "-c", "stty -a > /dev/tty && stty -echo"])'
python3 -m venv --without-pip venv && venv/bin/python -c 'print(2)'
PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 python3 -m pytest -q -p no:cacheprovider tests
python3 -m http.server 0 --bind 127.0.0.1 & sleep 0.2; kill $!
ruff check src
ruff format --check src
uv --version
node -e 'console.log(require("os").cpus().length)'
node -e 'require("http").createServer((q, r) => r.end("ok")).listen(0, function () { this.close() })'
node --test
npm run build
make -n
make
cargo --version
cargo build -q --offline --manifest-path rust/Cargo.toml
cargo run -q --offline --manifest-path rust/Cargo.toml
go version
go build ./...
gcc -o hello hello.c && ./hello
perl -e 'print "ok\n"'
rg -n main src
jq . package.json
git fetch https://example.invalid/x.git
git push https://example.invalid/x.git main
python3 -m pip install --disable-pip-version-check --retries 1 requests-not-there
npm install --no-audit --fetch-retries 0 left-pad
curl -sS -m 2 https://example.com
