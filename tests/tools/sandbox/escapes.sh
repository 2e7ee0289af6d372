# One attempt to get out of the sandbox a line, run in one sandboxed bash. $OUT is a folder outside, $OUT/file a file of
# it, $HOME below it with the usual secrets, $VICTIM a process outside, $TTY its terminal, $PORT and $UDP where it listens,
# $SOCK, $HOME/agent.sock and work/outer.sock its sockets. $N is the number of the attempt. $SUPERVISOR is 1 where
# processes have numbers of their own: then it is the sandbox's, and lets nothing of it in.
# --- writing outside
echo $N > "$OUT/made$N"
echo $N >> "$OUT/file"
: > "$OUT/file"
cp ok "$OUT/made$N"
mv -f ok2 "$OUT/made$N"
mv -T ok3 "$OUT/file"
ln -s "$OUT/file" link$N && echo $N > link$N
ln -s "$OUT" dir$N && echo $N > dir$N/made$N
ln "$OUT/file" hard$N && echo $N > hard$N
ln -f ok "$OUT/made$N"
cd "$OUT" && echo $N > made$N
echo $N > ../made$N
echo $N > "$PWD/../${OUT##*/}/made$N"
echo $N > "/proc/self/root$OUT/made$N"
echo $N > "/proc/self/cwd/../made$N"
echo $N > "/proc/$SUPERVISOR/root$OUT/made$N"
echo $N > "/proc/$SUPERVISOR/cwd/../made$N"
echo $N > "/proc/1/root$OUT/made$N"
echo $N > "/proc/$VICTIM/root$OUT/made$N"
echo $N > "/proc/$VICTIM/cwd/made$N"
exec 9< "$OUT"; echo $N > /proc/self/fd/9/made$N
exec 9<> "$OUT/file"; echo $N >&9
exec 9< "$OUT/file"; echo $N > /proc/self/fd/9
exec 9< "$OUT/file"; echo $N > /dev/fd/9
touch "$OUT/made$N"
touch -d 2001-01-01 "$OUT/file"
chmod 777 "$OUT/file"
chmod 777 "$HOME/.ssh"
chmod -R a+rwx "$OUT"
chown 12345 "$OUT/file"
chgrp 12345 "$OUT/file"
setfattr -n user.x -v $N "$OUT/file"
setfacl -m o::rwx "$OUT/file"
chattr +i "$OUT/file"
rm -f "$OUT/file"
rm -rf "$OUT"
rmdir "$OUT/empty"
mkdir "$OUT/made$N"
mkfifo "$OUT/made$N"
mknod "$OUT/made$N" p
truncate -s 0 "$OUT/file"
fallocate -l 100 "$OUT/file"
dd if=ok "of=$OUT/file" conv=notrunc
echo $N | tee -a "$OUT/file"
install ok "$OUT/made$N"
tar -cf - ok | tar -C "$OUT" -xf -
tar -cPf t.tar --transform "s,ok,$OUT/made$N," ok && tar -xPf t.tar
sed -i "s/^/$N/" "$OUT/file"
sed -n "w $OUT/made$N" ok
perl -pi -e "s/^/$N/" "$OUT/file"
awk "BEGIN{print $N > \"$OUT/made$N\"}"
find . -maxdepth 0 -fprintf "$OUT/made$N" x
sort -o "$OUT/made$N" ok
split ok "$OUT/made$N"
git init -q "$OUT/made$N"
git clone -q . "$OUT/made$N"
git worktree add "$OUT/made$N"
git diff --no-index --output="$OUT/made$N" ok /dev/null
printf -- '--- a/x\n+++ b/x\n@@ -0,0 +1 @@\n+%s\n' $N | patch -p0 "$OUT/file"
curl -s -o "$OUT/made$N" "file://$PWD/ok"
gzip -c ok > "$OUT/made$N"
rename ok made "$OUT/file"; mv "$OUT/file" "$OUT/made$N"
mv "$OUT/empty" .
mv "$PWD" "$OUT/made$N"
echo $N > /etc/made$N && echo GOT OUT
echo $N > /usr/local/bin/made$N && echo GOT OUT
echo $N > /var/lib/made$N && echo GOT OUT
[ -p "$OUT/fifo" ] && echo escaped > "$OUT/fifo" & sleep .05; kill $! 2>/dev/null
[ -p "$OUT/fifo" ] && echo escaped 1<> "$OUT/fifo"
# --- what runs later
echo $N >> "$HOME/.bashrc"
echo $N >> "$HOME/.profile"
echo $N >> "$HOME/.zshenv"
echo $N >> "$HOME/.ssh/authorized_keys"
echo $N >> "$HOME/.gitconfig"
git config --global core.pager "touch $OUT/made$N"
git config --system kimi.made$N x && echo GOT OUT
mkdir -p "$HOME/.config/systemd/user" && echo $N > "$HOME/.config/systemd/user/x.service"
mkdir -p "$HOME/.config/autostart" && echo $N > "$HOME/.config/autostart/x.desktop"
mkdir -p "$HOME/.local/bin" && echo $N > "$HOME/.local/bin/git"
mkdir -p "$HOME/.local/lib" && echo $N > "$HOME/.local/lib/usercustomize.py"
{ crontab -l; echo "# $N"; } | crontab - && echo GOT OUT
echo "# $N" > /etc/cron.d/made$N && echo GOT OUT
echo "# $N" > /var/spool/cron/crontabs/made$N && echo GOT OUT
echo "touch $OUT/made$N" | at now
systemd-run --user touch "$OUT/made$N"
systemctl --user daemon-reload
loginctl list-sessions && echo GOT OUT
echo "# $N" > /etc/profile.d/made$N.sh && echo GOT OUT
: >> /etc/ld.so.preload && echo GOT OUT
echo $N > .git/hooks/post-checkout
mkdir -p .git/hooks && cp ok .git/hooks/pre-commit
mv .git/hooks .git/h && mkdir .git/hooks && cp ok .git/hooks/pre-commit
rm -rf .git/hooks; mkdir .git/hooks; cp ok .git/hooks/pre-commit
ln -sfn "$PWD" .git/hooks
git config core.hooksPath .
git config core.fsmonitor "touch $OUT/made$N"
git config --worktree core.fsmonitor "touch $OUT/made$N"
git -c core.hooksPath=. config core.pager "touch $OUT/made$N"
git -c core.fsmonitor="touch $OUT/made$N" status
git -c core.hooksPath=tools checkout -q -b made$N
printf '[core]\n' > .git/config.lock && mv -f .git/config.lock .git/config
echo $N >> .git/config
sed -i "s/^/#$N/" .git/config
cp ok .git/config
truncate -s 0 .git/config
exec 9>> .git/config; echo $N >&9
python3 -c "import os; os.replace('ok', '.git/config')"
umount .git/hooks; echo $N > .git/hooks/pre-commit
umount -l .git; echo $N > .git/hooks/pre-commit
mount -o remount,bind,rw .git/hooks; echo $N > .git/hooks/pre-commit
mv .git g && cp -r g .git && cp ok .git/hooks/pre-commit
rm -rf .git; git init -q; cp ok .git/hooks/pre-commit
cp -r .git g2 && mv -T g2 .git
echo $N > sub/.git/hooks/pre-commit
mv sub sub2 && mkdir -p sub/.git/hooks && echo $N > sub/.git/hooks/pre-commit
echo $N >> .envrc
rm -f .envrc; echo $N > .envrc
mv -f ok4 .envrc
echo $N > .vscode/settings.json
mv .vscode v && mkdir .vscode && echo $N > .vscode/settings.json
echo $N >> team.gitconfig
mv team.gitconfig t$N && echo $N > team.gitconfig
echo $N >> tools/hooks/pre-commit
echo $N > tools/hooks/post-checkout
mv tools t$N && mkdir -p tools/hooks && echo $N > tools/hooks/pre-commit
sed -i "s/^/$N/" tools/watch
rm -f tools/watch; cp ok tools/watch
echo $N >> AGENTS.md
sed -i "s/^/$N/" AGENTS.md
# --- reading secrets
cat "$HOME/.ssh/id_rsa"
ls "$HOME/.ssh"
head -c 100 "$HOME/.ssh/id_rsa"
base64 -w0 "$HOME/.ssh/id_rsa" | base64 -d
cp "$HOME/.ssh/id_rsa" stolen$N && cat stolen$N
tar -cf - "$HOME" | tr -d '\0'
grep -r secret- "$HOME" "$OUT"
grep -ra secret- "/proc/$VICTIM/environ" "/proc/$SUPERVISOR/environ"
find "$HOME" -type f -exec cat {} +
dd "if=$HOME/.netrc"
mapfile -t lines < "$HOME/.netrc"; echo "${lines[@]}"
. "$HOME/.netrc"
sort "$HOME/.aws/credentials"
diff "$HOME/.npmrc" /dev/null
git diff --no-index /dev/null "$HOME/.npmrc"
curl -s "file://$HOME/.git-credentials"
ln -s "$HOME/.ssh/id_rsa" l$N; cat l$N
ln -s "$HOME" l$N; cat l$N/.ssh/id_rsa
ln "$HOME/.git-credentials" l$N; cat l$N
cat "/proc/self/root$HOME/.ssh/id_rsa"
cat "/proc/$SUPERVISOR/root$HOME/.ssh/id_rsa"
cat "/proc/1/root$HOME/.ssh/id_rsa"
cat "/proc/$VICTIM/root$HOME/.ssh/id_rsa"
cat "/proc/$VICTIM/cwd/home/.ssh/id_rsa"
cat /proc/$VICTIM/fd/*
tr '\0' '\n' < /proc/$VICTIM/environ
strings /proc/$VICTIM/mem
cat /proc/$VICTIM/maps && echo GOT OUT
for p in /proc/[0-9]*; do tr '\0' '\n' < $p/environ; done
cat "$KEPT_APP/config.toml"
cat "$KEPT_APP/sessions/other/context.jsonl"
cat "$HOME/.bash_history"
cat .env
source .env && echo "$TOKEN"
mv sub3 sub4; cat sub3/.env sub4/.env
ln .env e$N; cat e$N
cp .env e$N; cat e$N
mv .env e$N; cat e$N
git add -f .env && git show :.env
tar -cf - .env sub3 | tr -d '\0'
cat deploy.pem
cat app.key.bak
cat .ssh.old/id
cat node_modules/.npmrc
mv .ssh.old s$N; cat s$N/id
umount .env; cat .env
umount -l "$HOME/.ssh"; cat "$HOME/.ssh/id_rsa"
mount --bind "$OUT" sub3; cat sub3/home/.ssh/id_rsa
cat /etc/shadow && echo GOT OUT
gdb -p $VICTIM -batch -ex 'info registers' | grep -q '^[rx]' && echo GOT OUT
debugfs -R "cat $HOME/.ssh/id_rsa" "$(findmnt -no SOURCE / | head -1)"
dd if=/dev/mem bs=1 count=1 && echo GOT OUT
for d in /dev/vd* /dev/sd* /dev/nvme*n1 /dev/dm-*; do head -c 1 "$d" > /dev/null && echo GOT OUT; done
# --- namespaces, mounts, privileges
mount --bind . "$OUT/empty" && echo GOT OUT
mount -t tmpfs x "$OUT/empty" && echo GOT OUT
mount -o remount,rw / && echo GOT OUT
mount -t proc x sub3 && echo GOT OUT
umount /tmp && echo GOT OUT
unshare -m true && echo GOT OUT
unshare -Ur true && echo GOT OUT
unshare -n true && echo GOT OUT
unshare -Urm mount --bind . "$OUT/empty" && echo GOT OUT
nsenter -t 1 -m true && echo GOT OUT
nsenter -t $VICTIM -n true && echo GOT OUT
nsenter -t $SUPERVISOR -m -n true && echo GOT OUT
chroot / true && echo GOT OUT
chroot "/proc/$SUPERVISOR/root" true && echo GOT OUT
pivot_root . sub3 && echo GOT OUT
setpriv --clear-groups --inh-caps +all true && echo GOT OUT
sudo -n true && echo GOT OUT
su -c true nobody 2>/dev/null && cat "$HOME/.ssh/id_rsa"
cp /bin/bash rootsh && chmod u+s rootsh && ./rootsh -p -c "echo $N > '$OUT/made$N'"
cp /bin/true owner$N; chmod u+s owner$N; [ -u owner$N ] && echo GOT OUT
install -m 4755 /bin/true owner$N; [ -u owner$N ] && echo GOT OUT
cp /bin/true owner$N; chmod u+s owner$N; tar cpf owner.tar owner$N; rm owner$N; tar xpf owner.tar; [ -u owner$N ] && echo GOT OUT
perl -MFcntl -e "sysopen(F, 'owner$N', O_CREAT|O_WRONLY, 04755)"; [ -u owner$N ] && echo GOT OUT
losetup -f ok && echo GOT OUT
insmod ok && echo GOT OUT
modprobe dummy && echo GOT OUT
sysctl -w "kernel.core_pattern=$(cat /proc/sys/kernel/core_pattern)" && echo GOT OUT
cat /proc/sys/kernel/core_pattern > /proc/sys/kernel/core_pattern && echo GOT OUT
echo h > /proc/sysrq-trigger && echo GOT OUT
: > /sys/kernel/uevent_helper && echo GOT OUT
mkdir /sys/fs/cgroup/made$N && echo GOT OUT
echo $$ > /sys/fs/cgroup/cgroup.procs && echo GOT OUT
hostname "$(hostname)" && echo GOT OUT
date -s "$(date)" && echo GOT OUT
dmesg -n 7 && echo GOT OUT
mknod dev$N b 254 0 && head -c 1 dev$N && echo GOT OUT
mknod dev$N c 1 1 && echo GOT OUT
ip link add dummy0 type dummy && echo GOT OUT
iptables -N made$N && echo GOT OUT
# --- other processes and terminals
kill -9 $VICTIM
kill -STOP $VICTIM
kill -0 $VICTIM && echo GOT OUT
kill -TERM $SUPERVISOR && [ $SUPERVISOR != 1 ] && echo GOT OUT
pkill -f "$CANARY"
strace -p $VICTIM -o /dev/null & sleep .05; kill $! && grep -q 'TracerPid:[[:space:]]*[1-9]' /proc/$VICTIM/status && echo GOT OUT
prlimit --pid $VICTIM --cpu=1 && echo GOT OUT
renice 19 -p $VICTIM && echo GOT OUT
ionice -c 3 -p $VICTIM && echo GOT OUT
echo escaped > /dev/tty
echo escaped > "$TTY"
head -c 1 < "$TTY" & sleep .02; kill $! 2>/dev/null
echo escaped > /dev/console
echo escaped > /dev/tty0
[ -c /dev/kmsg ] && echo escaped > /dev/kmsg && echo GOT OUT
echo escaped | wall
script -qc "echo escaped > '$TTY'" /dev/null
cat "/dev/shm/$CANARY"
echo $N > "/dev/shm/$CANARY"
ls /dev/pts | grep -qx "${TTY##*/}" && echo GOT OUT
ipcs -m | grep -qi "$SHM_KEY" && echo GOT OUT
ipcrm -M "$SHM_KEY" && echo GOT OUT
echo 1000 > /proc/$VICTIM/oom_score_adj && echo GOT OUT
# --- the network
echo $N > /dev/tcp/127.0.0.1/$PORT
echo $N > /dev/tcp/localhost/$PORT
echo $N > /dev/udp/127.0.0.1/$UDP
echo $N > "/dev/tcp/$(hostname -I | cut -d' ' -f1)/$PORT"
curl -sS -m 1 "http://127.0.0.1:$PORT/$N"
curl -sS -m 1 --noproxy '*' "http://0.0.0.0:$PORT/$N"
curl -sS -m 1 -x "http://127.0.0.1:$PORT" http://example.invalid/$N
curl -sS -m 1 --unix-socket "$SOCK" http://x/$N
curl -sS -m 1 --unix-socket "$HOME/agent.sock" http://x/$N
curl -sS -m 1 --unix-socket outer.sock http://x/$N
curl -sS -m 1 --abstract-unix-socket "$CANARY" http://x/$N
curl -sS -m 1 --unix-socket /var/run/docker.sock http://x/version && echo GOT OUT
docker -H "unix://$SOCK" ps
wget -q -T 1 -t 1 -O - "http://127.0.0.1:$PORT/$N"
getent hosts example.com && echo GOT OUT
getent ahosts one.one.one.one && echo GOT OUT
ssh -o BatchMode=yes -o ConnectTimeout=1 -p $PORT 127.0.0.1
SSH_AUTH_SOCK="$HOME/agent.sock" ssh-add -l
git ls-remote "http://127.0.0.1:$PORT/$N"
git ls-remote "ext::sh -c \"echo $N > /dev/tcp/127.0.0.1/$PORT\""
perl -MIO::Socket::INET -e "print {IO::Socket::INET->new('127.0.0.1:$PORT')} $N"
ping -c 1 -W 1 1.1.1.1 && echo GOT OUT
dbus-send --session --dest=x / x.y && echo GOT OUT
DBUS_SESSION_BUS_ADDRESS="unix:path=$SOCK" dbus-send --session --dest=x / x.y
rsync -a "rsync://127.0.0.1:$PORT/x" .
# --- staying
setsid sh -c "while :; do date +%N > beat; sleep .02; done" > /dev/null 2>&1 &
nohup sh -c "while :; do date +%N > beat; sleep .02; done" > /dev/null 2>&1 &
( ( env -i /bin/sh -c "while :; do date +%N > /proc/self/cwd/beat; sleep .02; done" > /dev/null 2>&1 & ) & )
trap '' TERM HUP; ( sleep 30; echo $N > beat ) > /dev/null 2>&1 &
