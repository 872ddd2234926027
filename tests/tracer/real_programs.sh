# Uses many everyday programs in the folder $1 and prints what they say and their exit codes; the same on every run.
set -u
d=$1
mkdir -p "$d"
cd "$d"
export TZ=UTC LC_ALL=C
have() { command -v "$1" >/dev/null 2>&1; }
echo "== tar, compression"
mkdir -p tree/a/b
for i in 1 2 3 4 5 6 7 8 9; do
    head -c $((i * 1000)) /dev/zero | tr '\0' "$i" >tree/a/f$i
    ln -sf ../f$i tree/a/b/l$i
done
find tree -exec touch -h -d 2020-01-01 {} +
tar --sort=name --owner=0 --group=0 --numeric-owner -czf t.tgz tree; echo $?
tar tzf t.tgz
mkdir -p x; tar xzf t.tgz -C x; diff -r tree x/tree; echo $?
gzip -dc t.tgz | md5sum
have bzip2 && bzip2 -c t.tgz | bzip2 -dc | cmp - t.tgz
have xz && xz -c t.tgz | xz -dc | cmp - t.tgz
if have rsync; then
    echo "== rsync"
    rsync -a --itemize-changes tree/ y/ | sort; echo more >>tree/a/f1; touch -d 2020-01-02 tree/a/f1
    rsync -a --itemize-changes tree/ y/; diff -r tree y; echo $?
fi
echo "== files"
cp -a tree z; cp --sparse=always --reflink=auto tree/a/f9 sp
dd if=tree/a/f9 of=dd.out bs=1000 skip=1 seek=2 count=3 conv=notrunc,fsync status=none; md5sum dd.out sp
truncate -s 5G big; stat -c %s big; cp --sparse=always big big2; stat -c %s big2; rm -f big big2
install -m 640 tree/a/f1 inst; stat -c %a inst; mv inst inst2; ln inst2 hard; stat -c %h hard; rm -f hard
split -n 3 tree/a/f9 sp_; cat sp_* | cmp - tree/a/f9; echo $?; cmp tree/a/f1 tree/a/f2; echo $?
echo "== compiler"
printf '#include <stdio.h>\nint main(void) { printf("compiled %%d\\n", 42); return 7; }\n' >h.c
${CC:-cc} -O2 -pipe -o h h.c; echo $?; ./h; echo $?
printf 'all: h2\nh2: h.c\n\t%s -o h2 h.c\n' "${CC:-cc}" >Makefile
have make && { make -s; ./h2; echo $?; }
echo "== shell"
seq 1 20000 | sort -rn | awk '{s+=$1} END {print s, NR}' | tee o1 | cat
(echo a; echo b >&2) 2>&1 | sort
cat <(echo substituted) <(echo twice)
set -o pipefail; false | true; echo $?; set +o pipefail
exec 5<tree/a/f1; read -r -n 5 -u 5 v; echo "$v"; exec 5<&-
trap 'echo trapped' USR1; kill -USR1 $$
(trap 'echo at exit' EXIT; exit 3); echo $?
sh -c 'kill -TERM $$' 2>/dev/null; echo $?
{ sleep 0.05; echo background; } & wait
for i in 1 2 3; do (echo "parallel $i" >par$i) & done; wait; cat par?
timeout 0.1 sleep 5; echo $?
yes | head -n 3; ls nonexistent 2>&1; echo $?
find tree -name 'f*' | sort | xargs -P2 -n3 wc -c >/dev/null; echo $?
sed -i s/compiled/COMPILED/ h.c; grep -c COMPILED h.c; diff <(seq 5) <(seq 6)
(exec 0<&- 1>&-; echo gone; cat) 2>/dev/null; echo $?
if have perl; then
    echo "== perl"
    perl -e '$|=1; open(F,">p1") or die; print F "line $_\n" for 1..1000; close F; open(F,"p1"); my $n=0; $n++ while <F>; print "$n\n";
        opendir(D,"tree/a"); print join(" ",sort readdir D),"\n"; my $p=fork(); if(!$p){ exec("echo","by exec") } wait; print $?>>8,"\n";
        local $SIG{ALRM}=sub{die "alarm\n"}; eval { alarm 1; select(undef,undef,undef,50); }; print $@; print `echo backtick`; system("exit 4"); print $?>>8,"\n";
        pipe(R,W); if(!fork){close R; print W "piped"; exit} close W; print <R>,"\n"; rename "p1","p2"; unlink "p2"; print -e "p2" ? 1:0,"\n";'
fi
if have python3; then
    echo "== python"
    python3 - <<'P'
import os, subprocess, tempfile, mmap, concurrent.futures as cf, multiprocessing as mp, shutil, zipfile
print(subprocess.run("cat; exit 3", shell=True, input=b"in", capture_output=True))
print(subprocess.run(["env"], env={"A": "1"}, capture_output=True).stdout.count(b"A=1"))
with tempfile.TemporaryFile() as f:
    f.write(b"x" * 100); f.flush(); m = mmap.mmap(f.fileno(), 0); print(len(m), m[:3])
with cf.ThreadPoolExecutor(8) as e:
    print(sum(e.map(lambda i: len(open("tree/a/f%d" % (i % 9 + 1)).read()), range(200))))
with mp.get_context("fork").Pool(3) as p:
    print(p.map(os.path.getsize, ["tree/a/f%d" % i for i in range(1, 10)]))
with zipfile.ZipFile("z.zip", "w") as z:
    z.write("tree/a/f2")
print(zipfile.ZipFile("z.zip").namelist())
r, w = os.pipe(); os.write(w, b"pipe"); print(os.read(r, 10)); os.close(r)
try:
    os.write(w, b"x")
except OSError as e:
    print(type(e).__name__)
shutil.copytree("tree", "tree2", symlinks=True); print(sorted(os.listdir("tree2/a"))[:3], flush=True)
print(os.waitpid(os.posix_spawn("/bin/echo", ["echo", "spawned"], {}), 0)[1])
os.closerange(3, 4096); print(os.open("/dev/null", 0))
P
fi
if have node; then
    echo "== node"
    node -e 'const fs=require("fs"); fs.writeFileSync("n1","abc"); console.log(fs.readFileSync("n1","utf8")); fs.promises.readFile("n1").then(b=>console.log(b.length)); require("child_process").execSync("echo child",{stdio:"inherit"})' 2>/dev/null
fi
echo "== end"
