#!/usr/bin/env bash
# Every link of our Markdown files leads somewhere, anchors included; every mention of a page below doc/, in any file,
# is a page that exists; every page of doc/ is in the index doc/README.md.
set -eu
cd "$(dirname "$0")/../.."
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }
exec python3 tests/lint/links.py "$@"
