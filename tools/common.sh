# common.sh - what the scripts in tools/ and test/ share; sourced, not run.
# shellcheck shell=bash

# Every message of a script starts with its name, so that it can be told from those of the programs it runs.
note() {
	printf '%s: %s\n' "${0##*/}" "$*" >&2
}

die() {
	note "$@"
	exit 1
}

have() {
	command -v "$1" >/dev/null 2>&1
}

# A check that cannot be made here ends with this status, which test/run counts as skipped.
readonly SKIPPED=77

skip() {
	note "skipped: $*"
	exit "$SKIPPED"
}

# Warnings that PostgreSQL's own headers cause under -Wextra are off; everything else is an error.
# shellcheck disable=SC2034
readonly WARNING_FLAGS='-Wall -Wextra -Werror -Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers'

# The extension's version, from the one place that has it.
extension_version() {
	sed -n "s/^default_version *= *'\(.*\)'/\1/p" idempotency.control
}
