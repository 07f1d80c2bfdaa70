# packages.sh - find PostgreSQL and the tools of a build, and install what is missing; sourced by tools/throwaway.
# shellcheck shell=bash

# While this file exists, Debian's packages do not create and start a server of their own when one is installed.
readonly NO_CLUSTER_DIRECTORY=/etc/postgresql-common/createcluster.d
readonly NO_CLUSTER_FILE=$NO_CLUSTER_DIRECTORY/zz-idempotency-throwaway.conf
made_no_cluster_directory=

# Sets PG_CONFIG, installing PostgreSQL and whatever else is missing where that is possible.
# With "yes" as the argument, the tools that only the tests need are looked for too.
require_packages() {
	local with_test_tools=$1

	if [ -n "${PG_CONFIG:-}" ]; then
		check_given_pg_config
	fi
	if is_everything_there "$with_test_tools"; then
		return
	fi
	if ! have apt-get; then
		die "$(describe_missing "$with_test_tools")"
	fi
	install_missing "$with_test_tools"
	if ! is_everything_there "$with_test_tools"; then
		die "still missing after the installation: $(describe_missing "$with_test_tools")"
	fi
}

# A PG_CONFIG that somebody set is meant, so nothing else is taken in its place.
check_given_pg_config() {
	local version advice

	if ! version=$("$PG_CONFIG" --version 2>/dev/null); then
		die "PG_CONFIG is set to \"$PG_CONFIG\", which does not run. Set it to the full path of a pg_config" \
			"(for example /usr/lib/postgresql/15/bin/pg_config), or unset it to have one found."
	fi
	advice="or unset PG_CONFIG to have another PostgreSQL found or installed."
	if ! has_headers "$PG_CONFIG"; then
		die "$version, which PG_CONFIG names, lacks its server headers (no file $("$PG_CONFIG" --pgxs))." \
			"Install them (Debian, Ubuntu: postgresql-server-dev-$(major_of "$version")), $advice"
	fi
	if ! has_server "$PG_CONFIG"; then
		die "$version, which PG_CONFIG names, lacks its server (no initdb and postgres in $("$PG_CONFIG" --bindir))." \
			"Install it (Debian, Ubuntu: postgresql-$(major_of "$version")), $advice"
	fi
}

# "PostgreSQL 15.3 (…)" and "PostgreSQL 19beta1" are 15 and 19.
major_of() {
	printf '%s\n' "$1" | sed 's/^[^0-9]*\([0-9]*\).*/\1/'
}

has_headers() {
	[ -f "$("$1" --pgxs 2>/dev/null)" ]
}

has_server() {
	local bindir
	bindir=$("$1" --bindir 2>/dev/null) && [ -x "$bindir/postgres" ] && [ -x "$bindir/initdb" ]
}

# The pg_config in PATH, else the newest of Debian's side-by-side installations.
find_pg_config() {
	local candidate

	if [ -n "${PG_CONFIG:-}" ]; then
		printf '%s\n' "$PG_CONFIG"
		return
	fi
	{
		command -v pg_config || true
		printf '%s\n' /usr/lib/postgresql/*/bin/pg_config | sort -t / -k 5 -rn
	} | while IFS= read -r candidate; do
		if has_headers "$candidate" && has_server "$candidate"; then
			printf '%s\n' "$candidate"
			break
		fi
	done
}

# Compiling and linking something shows that the C library's headers are there as well.
has_compiler() {
	local compiler=$1

	printf '#include <stdio.h>\nint main(void) { return 0; }\n' |
		"$compiler" -x c -o /dev/null - >/dev/null 2>&1
}

has_perl_modules() {
	perl -MIPC::Run -MTest::More -MJSON::PP -e 1 2>/dev/null
}

is_everything_there() {
	PG_CONFIG=$(find_pg_config)
	[ -n "$PG_CONFIG" ] && [ -z "$(missing_tools "$1")" ]
}

# Names of what is missing besides PostgreSQL, one a line, as Debian's packages call it.
missing_tools() {
	local with_test_tools=$1

	have make || echo make
	has_compiler "$(compiler)" || printf 'gcc\nlibc6-dev\n'
	has_perl_modules || echo libipc-run-perl
	if [ "$with_test_tools" = yes ]; then
		has_compiler clang || echo clang
		# Where no package has it (PostgreSQL 16 and later bring their own), the check of the formatting is skipped.
		if ! have pg_bsd_indent && is_packaged pg-bsd-indent; then
			echo pg-bsd-indent
		fi
		missing_client_libraries
	fi
}

# Of the languages that are here; test/t/client_libraries.pl skips the others, and gets node-postgres from npm by itself.
missing_client_libraries() {
	if [ -x /usr/bin/python3 ] && ! /usr/bin/python3 -c 'import psycopg' 2>/dev/null && is_packaged python3-psycopg; then
		echo python3-psycopg
	fi
	if have javac && [ ! -e /usr/share/java/postgresql.jar ] && is_packaged libpostgresql-jdbc-java; then
		echo libpostgresql-jdbc-java
	fi
}

compiler() {
	local compiler=

	if [ -n "$PG_CONFIG" ]; then
		compiler=$("$PG_CONFIG" --cc 2>/dev/null || true)
	fi
	# The first word: some builds record options with it.
	compiler=${compiler%% *}
	printf '%s\n' "${compiler:-gcc}"
}

is_packaged() {
	have apt-cache && [ -n "$(apt-cache show --no-all-versions "$1" 2>/dev/null)" ]
}

# For systems other than Debian and Ubuntu.
describe_missing() {
	local missing

	missing=$(missing_tools "$1" | sed 's/libipc-run-perl/the Perl module IPC::Run/; s/libc6-dev/the C library headers/' |
		paste -s -d , -)
	if [ -z "$PG_CONFIG" ]; then
		missing="a PostgreSQL server (14 or later) with its server headers, both of one version${missing:+,$missing}"
	fi
	printf 'install %s and run this again (PG_CONFIG=/path/to/pg_config names a PostgreSQL that is not in PATH).\n' \
		"${missing//,/, }"
}

# Package names of server and headers, one a line. A server that is there keeps its version: its package may be
# serving data. If both are missing they are installed by one command, so that their minor versions agree.
missing_postgresql() {
	local major server

	if [ -n "$PG_CONFIG" ]; then
		return
	fi
	server=$(printf '%s\n' /usr/lib/postgresql/*/bin/postgres | sort -t / -k 5 -rn | head -n 1)
	if [ -x "$server" ]; then
		major=$(printf '%s\n' "$server" | cut -d / -f 5)
	else
		major=$(default_major)
		echo "postgresql-$major"
	fi
	echo "postgresql-server-dev-$major"
}

# The version that this release of Debian or Ubuntu calls simply "postgresql".
default_major() {
	local major

	major=$(apt-cache depends postgresql 2>/dev/null | sed -n 's/^ *Depends: *postgresql-\([0-9][0-9]*\)$/\1/p' | head -n 1)
	if [ -z "$major" ]; then
		die "apt knows no package postgresql. Run \"apt-get update\" as root, then this again."
	fi
	printf '%s\n' "$major"
}

install_missing() {
	local missing

	if [ "$(id -u)" -ne 0 ]; then
		missing=$(missing_postgresql; missing_tools "$1") || exit 1
		die "packages are missing. Install them, then run this again:" \
			"sudo apt-get install ${missing//$'\n'/ }"
	fi
	note "bringing the package lists up to date"
	# One unreachable list is no reason to stop: what is needed may stand in another.
	apt_get update || note "apt-get update failed; trying with the lists that are there"
	missing=$(missing_postgresql; missing_tools "$1") || exit 1
	note "installing ${missing//$'\n'/ }"
	prevent_new_cluster "$missing"
	# shellcheck disable=SC2086
	apt_get install --no-install-recommends $missing ||
		die "the installation failed. Make \"apt-get install ${missing//$'\n'/ }\" work, then run this again."
	allow_new_cluster
}

# Services that are running are neither restarted nor asked about. What apt says matters only if it fails.
apt_get() {
	local log status=0

	log=$(mktemp)
	DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
		apt-get -qq -y -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 "$@" > "$log" 2>&1 || status=$?
	if [ "$status" -ne 0 ]; then
		tail -n 30 "$log" >&2
	fi
	rm -f "$log"
	return "$status"
}

prevent_new_cluster() {
	if ! printf '%s\n' "$1" | grep -q '^postgresql-[0-9]'; then
		return
	fi
	# First without a server, so that the directory below has its owner.
	apt_get install --no-install-recommends postgresql-common ||
		die "the installation of postgresql-common failed. Make \"apt-get install postgresql-common\" work, then run this again."
	if [ ! -d "$NO_CLUSTER_DIRECTORY" ]; then
		mkdir "$NO_CLUSTER_DIRECTORY"
		made_no_cluster_directory=yes
	fi
	echo 'create_main_cluster = false' > "$NO_CLUSTER_FILE"
}

# Also called on the way out, whatever happened.
allow_new_cluster() {
	if [ "$(id -u)" -eq 0 ]; then
		rm -f "$NO_CLUSTER_FILE"
	fi
	if [ -n "$made_no_cluster_directory" ]; then
		rmdir "$NO_CLUSTER_DIRECTORY" 2>/dev/null || true
		made_no_cluster_directory=
	fi
}
