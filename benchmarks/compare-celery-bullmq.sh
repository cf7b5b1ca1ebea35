#!/usr/bin/env bash
# Measures the libraries for Python and TypeScript beside Celery and BullMQ on Redis, in one run, and writes the figures to
# benchmarks/results/.
#
#   benchmarks/compare-celery-bullmq.sh                             two rounds, about ten minutes
#   benchmarks/compare-celery-bullmq.sh --rounds 1 --jobs 2000 --each 500    a short look
#
# Celery comes from PyPI into target/python-celery, BullMQ from npm into target/node-bullmq; Redis is the system's. WINDLASS=… is the
# server's program, built unless given. NAME=… names the result files.
set -euo pipefail
cd "$(dirname "$0")/.."

need() { command -v "$1" >/dev/null || { echo "$1 is not installed; on Debian: apt-get install $2" >&2; exit 1; }; }
need redis-server redis-server
need node nodejs
need npm npm
need python3 python3-venv

target=${CARGO_TARGET_DIR:-target}
if [ -z "${WINDLASS:-}" ]; then
    cargo build --release --quiet -p windlass
    WINDLASS=$target/release/windlass
fi
WINDLASS=$(realpath "$WINDLASS")
celery=${CELERY:-$PWD/target/python-celery/bin/python}
modules=${MODULES:-$PWD/target/node-bullmq}
[ -x "$celery" ] || { python3 -m venv target/python-celery && "$celery" -m pip install -q 'celery[redis]'; }
if [ ! -d "$modules/node_modules/bullmq" ]; then
    mkdir -p "$modules"
    cp benchmarks/clients/package.json "$modules/"
    npm install --prefix "$modules" --no-audit --no-fund --silent
fi
[ -d clients/typescript/node_modules ] || npm ci --silent --no-audit --no-fund --prefix clients/typescript
npm run --silent --prefix clients/typescript build

load=$(cut -d' ' -f1 /proc/loadavg)
if [ "${load%.*}" -ge 1 ]; then
    echo "warning: the load average is $load before the run; wait until the machine is quiet for figures that count" >&2
fi
mkdir -p benchmarks/results
save=benchmarks/results/${NAME:-celery-bullmq-$(date +%Y-%m-%d)}
WINDLASS_BIN=$WINDLASS PYTHONPATH=$PWD/clients/python/src PYTHONDONTWRITEBYTECODE=1 \
    python3 benchmarks/clients/compare.py --modules "$modules" --celery "$celery" --save "$save" "$@"
version() { "$celery" -c "import importlib.metadata as m; print(m.version('$1'))"; }
{
    echo
    echo "Machine: $(nproc) cores, $(awk '/MemTotal/ {printf "%.0f", $2 / 1048576}' /proc/meminfo) GB, Linux $(uname -r)," \
        "$(python3 --version), Celery $(version celery), redis-py $(version redis), node $(node --version)," \
        "BullMQ $(node -p "require('$modules/node_modules/bullmq/package.json').version")," \
        "Redis $(redis-server --version | grep -o 'v=[0-9.]*' | cut -c3-)," \
        "load average $load before the run, $(cut -d' ' -f1 /proc/loadavg) after it."
    echo
    echo "Command: \`benchmarks/compare-celery-bullmq.sh${*:+ $*}\`"
} >>"$save.md"
cat "$save.md"
echo "written: $save.json $save.md" >&2
