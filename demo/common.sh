# common.sh - what the demonstration and its flows share; sourced, not run.
# shellcheck shell=bash

die() {
	printf 'demo: %s\n' "$*" >&2
	exit 1
}

# One psql for everything: no settings of the user's, bare values, and an error ends it.
sql() {
	PGOPTIONS="${PGOPTIONS:-} -c client_min_messages=warning" psql -X -q -A -t -v ON_ERROR_STOP=1 "$@"
}

headline() {
	printf '\n%s\n%s\n\n' "$1" "${1//?/=}"
}

# step WORDS FIGURES: a line of the story.
step() {
	printf '  %-46s %s\n' "$1" "${2:-}"
}

# 1234567 is 1,234,567.
thousands() {
	printf '%s\n' "$1" | sed -e ':a' -e 's/\([0-9]\)\([0-9]\{3\}\)\($\|,\)/\1,\2\3/' -e 'ta'
}

# A flow's own processes end with it, whatever ends it.
end_children_on_exit() {
	trap end_children EXIT
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 143' TERM
}

# shellcheck disable=SC2317 # from a trap
end_children() {
	local child

	for child in $(jobs -p); do
		kill "$child" 2>/dev/null || true
	done
	wait 2>/dev/null || true
}
