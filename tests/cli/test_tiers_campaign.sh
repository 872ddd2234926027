#!/usr/bin/env bash
# Random worlds, policies, tiers and faults: right bytes, or an end with the cause named. Twelve runs that are always the same; in test-full 400 of a new seed, also over nodes.
set -eu
cd "$(dirname "$0")/../.."
if [ -n "${MR_TEST_FULL:-}" ]; then
    exec timeout 3000 python3 tests/cli/tiers_campaign.py "$MILLRACE" --runs 400 --nodes
fi
exec timeout 600 python3 tests/cli/tiers_campaign.py "$MILLRACE" --runs 12 --seed 1
