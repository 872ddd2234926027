#!/usr/bin/env bash
# The rig of bench/run_tiers with a small set: policies read from tiers what they read from the source, byte for byte, and the source, counted where it is, gives
# every byte once. No times are judged here.
set -eu
cd "$(dirname "$0")/../.."
export ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=report_bugs=0 # MPI libraries leak at exit; leaks of the tiers: test_tier_stress
exec timeout 300 python3 bench/run_tiers "${MR_BINARY_DIR:-build}" --quick
